-- What the whole fleet may ask of models: limits and their counters, one row a model and one a
-- schedule with a budget. A call is admitted and written by one statement that holds the rows it
-- counts on; whatever ends it, the trigger below gives back what it held.

CREATE TABLE llm_quotas (
    scope               text NOT NULL CHECK (scope IN ('model', 'schedule')),
    name                text NOT NULL,
    requests_per_minute integer CHECK (requests_per_minute > 0),
    burst               integer CHECK (burst > 0),
    tokens_per_minute   bigint CHECK (tokens_per_minute > 0),
    token_burst         bigint CHECK (token_burst > 0),
    max_in_flight       integer CHECK (max_in_flight > 0),
    daily_tokens        bigint CHECK (daily_tokens >= 0),
    daily_cost_micro    bigint CHECK (daily_cost_micro >= 0),
    timezone            text NOT NULL DEFAULT 'UTC',
    over_budget         text NOT NULL DEFAULT 'park'
        CHECK (over_budget IN ('park', 'dead') OR over_budget LIKE 'downgrade: _%'),
    file                jsonb,
    set_by              text,
    set_at              timestamptz,
    request_tat         timestamptz NOT NULL DEFAULT '-infinity',
    token_tat           timestamptz NOT NULL DEFAULT '-infinity',
    in_flight           integer NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    day                 date NOT NULL DEFAULT '1970-01-01',
    used_tokens         bigint NOT NULL DEFAULT 0 CHECK (used_tokens >= 0),
    held_tokens         bigint NOT NULL DEFAULT 0 CHECK (held_tokens >= 0),
    used_cost_micro     bigint NOT NULL DEFAULT 0 CHECK (used_cost_micro >= 0),
    held_cost_micro     bigint NOT NULL DEFAULT 0 CHECK (held_cost_micro >= 0),
    closed_at           timestamptz,
    closed_until        timestamptz,
    closed_endpoint     text,
    closed_reason       text,
    probe               uuid,
    untried_until       timestamptz NOT NULL DEFAULT 'infinity',
    turn_at             timestamptz NOT NULL DEFAULT '-infinity',
    park_turn_at        timestamptz NOT NULL DEFAULT '-infinity',
    latency_ms          double precision NOT NULL DEFAULT 0,
    budget_told_on      date,
    PRIMARY KEY (scope, name),
    CONSTRAINT llm_quotas_rates CHECK (
        (requests_per_minute IS NULL) = (burst IS NULL)
        AND (tokens_per_minute IS NULL) = (token_burst IS NULL)),
    CONSTRAINT llm_quotas_closed CHECK (
        (closed_until IS NULL) = (closed_at IS NULL)
        AND (closed_until IS NULL) = (closed_endpoint IS NULL)
        AND (closed_until IS NULL) = (closed_reason IS NULL)
        AND (probe IS NULL OR closed_until IS NOT NULL)),
    CONSTRAINT llm_quotas_set CHECK ((set_by IS NULL) = (set_at IS NULL))
-- Every call changes its row and no column of an index: HOT, given room on the page.
) WITH (fillfactor = 50);
COMMENT ON TABLE llm_quotas IS 'limits of the whole fleet with their counters; a row is held only for one statement, never during a call';
COMMENT ON COLUMN llm_quotas.scope IS 'model or schedule';
COMMENT ON COLUMN llm_quotas.name IS 'the model as asked for, or the schedule';
COMMENT ON COLUMN llm_quotas.requests_per_minute IS 'requests a minute; NULL is no limit, here and below';
COMMENT ON COLUMN llm_quotas.burst IS 'requests that may go at once after a pause';
COMMENT ON COLUMN llm_quotas.tokens_per_minute IS 'input and output tokens a minute, by estimate';
COMMENT ON COLUMN llm_quotas.token_burst IS 'tokens that may go at once after a pause; a larger call goes when nothing else is owed';
COMMENT ON COLUMN llm_quotas.max_in_flight IS 'calls under way at a time';
COMMENT ON COLUMN llm_quotas.daily_tokens IS 'input and output tokens a day';
COMMENT ON COLUMN llm_quotas.daily_cost_micro IS 'millionths of a US dollar a day';
COMMENT ON COLUMN llm_quotas.timezone IS 'IANA zone whose midnight ends the day';
COMMENT ON COLUMN llm_quotas.over_budget IS 'what becomes of a task whose call may need more than is left of the day: park, dead, or downgrade: MODEL';
COMMENT ON COLUMN llm_quotas.file IS 'what belfry.yaml said when it was last applied; NULL where it says nothing';
COMMENT ON COLUMN llm_quotas.set_by IS 'who set the limits by hand; they count until the file says something new';
COMMENT ON COLUMN llm_quotas.set_at IS 'when';
COMMENT ON COLUMN llm_quotas.request_tat IS 'GCRA: when the requests so far would be over at the steady rate';
COMMENT ON COLUMN llm_quotas.token_tat IS 'the same for tokens';
COMMENT ON COLUMN llm_quotas.in_flight IS 'calls under way';
COMMENT ON COLUMN llm_quotas.day IS 'the day that the next four columns count';
COMMENT ON COLUMN llm_quotas.used_tokens IS 'tokens of ended calls; estimates where nobody knows';
COMMENT ON COLUMN llm_quotas.held_tokens IS 'estimates of calls under way';
COMMENT ON COLUMN llm_quotas.used_cost_micro IS 'cost of ended calls; estimates where nobody knows';
COMMENT ON COLUMN llm_quotas.held_cost_micro IS 'estimates of calls under way';
COMMENT ON COLUMN llm_quotas.closed_at IS 'when the provider''s answer closed the model; NULL while it is open';
COMMENT ON COLUMN llm_quotas.closed_until IS 'closed for all until then, after that for all but one probe; infinity: until an operator opens it';
COMMENT ON COLUMN llm_quotas.closed_endpoint IS 'host and port that said so: the model elsewhere is open';
COMMENT ON COLUMN llm_quotas.closed_reason IS 'the provider''s words';
COMMENT ON COLUMN llm_quotas.probe IS 'the one call that finds out whether it is open again';
COMMENT ON COLUMN llm_quotas.untried_until IS 'until then only few calls are under way: who says no says it at once, and not to the whole fleet; infinity: nobody has asked since it was made or opened by hand; -infinity: it has answered';
COMMENT ON COLUMN llm_quotas.turn_at IS 'when the next one that has to wait is told to come back: each gets a moment of its own';
COMMENT ON COLUMN llm_quotas.park_turn_at IS 'the same for those that wait for the next day';
COMMENT ON COLUMN llm_quotas.latency_ms IS 'moving mean of the time of a call; a guess of when one of those under way ends';
COMMENT ON COLUMN llm_quotas.budget_told_on IS 'day of the last alert about a spent budget';

CREATE TABLE llm_waits (
    task_id uuid PRIMARY KEY,
    scope   text NOT NULL,
    name    text NOT NULL,
    reason  text NOT NULL,
    since   timestamptz NOT NULL,
    until   timestamptz NOT NULL
);
COMMENT ON TABLE llm_waits IS 'tasks that a quota sent away, until they are admitted or end: whom to wake when it changes';
COMMENT ON COLUMN llm_waits.task_id IS 'the task';
COMMENT ON COLUMN llm_waits.scope IS 'scope of the quota';
COMMENT ON COLUMN llm_waits.name IS 'name of the quota';
COMMENT ON COLUMN llm_waits.reason IS 'what was exhausted';
COMMENT ON COLUMN llm_waits.since IS 'first time that it was sent away';
COMMENT ON COLUMN llm_waits.until IS 'when it was told to come back';
CREATE INDEX llm_waits_quota ON llm_waits (scope, name);

ALTER TABLE llm_calls
    ADD COLUMN schedule text,
    ADD COLUMN task_type text,
    ADD COLUMN day date,
    ADD COLUMN budget_day date,
    ADD COLUMN est_tokens bigint,
    ADD COLUMN est_cost_micro bigint;
COMMENT ON COLUMN llm_calls.usage_estimated IS 'the endpoint named no usage, or one that cannot be; the tokens are our estimate';
COMMENT ON COLUMN llm_calls.schedule IS 'schedule of the task, by which usage is told';
COMMENT ON COLUMN llm_calls.task_type IS 'type of the task, by which usage is told';
COMMENT ON COLUMN llm_calls.day IS 'day it counts on in the zone of the model''s quota; NULL for calls older than quotas';
COMMENT ON COLUMN llm_calls.budget_day IS 'the same for the schedule''s budget; NULL where there is none';
COMMENT ON COLUMN llm_calls.est_tokens IS 'input and output tokens as estimated before the call';
COMMENT ON COLUMN llm_calls.est_cost_micro IS 'the cost of that; NULL for a model without a price';
-- Whose calls they were is still known.
UPDATE llm_calls c SET schedule = t.schedule, task_type = n.task_type
FROM tasks t JOIN task_inputs n ON n.task_id = t.id WHERE t.id = c.task_id;
-- Calls under way are few, whatever the journal holds.
CREATE INDEX llm_calls_sent ON llm_calls (task_id) WHERE state = 'sent';

-- What a call counts for, by its state: under way it holds its estimate; ended it has used what was
-- billed; with an unknown outcome it has used its estimate. Each change of state moves its rows by
-- the difference, so that no path can forget it and none can count it twice. Rows are locked in one
-- order, by scope and name, here and in the statement that admits.
CREATE FUNCTION llm_calls_settle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Most updates change no call's state.
    IF NOT EXISTS (SELECT FROM is_now n JOIN was o USING (id) WHERE n.state <> o.state) THEN
        RETURN NULL;
    END IF;
    PERFORM FROM llm_quotas q
    WHERE EXISTS (SELECT FROM is_now n JOIN was o USING (id)
                  WHERE n.state <> o.state
                    AND (q.scope, q.name) IN (('model', n.model), ('schedule', n.schedule)))
    ORDER BY q.scope, q.name
    FOR UPDATE;
    WITH moved AS (
        SELECT n.id, n.model, n.schedule, n.day, n.budget_day,
               -- Any answer but a passing trouble shows that the provider talks again.
               n.state = 'done' OR n.state = 'failed' AND n.error_class <> 'retryable' AS answered,
               (n.state = 'sent')::int - (o.state = 'sent')::int AS in_flight,
               coalesce(n.est_tokens, 0) * ((n.state = 'sent')::int - (o.state = 'sent')::int) AS held_tokens,
               coalesce(n.est_cost_micro, 0) * ((n.state = 'sent')::int - (o.state = 'sent')::int) AS held_cost,
               used_now.tokens - used_was.tokens AS used_tokens,
               used_now.cost - used_was.cost AS used_cost,
               CASE WHEN n.state = 'done' THEN extract(epoch FROM n.ended_at - n.started_at) * 1000 END AS took_ms
        FROM is_now n JOIN was o USING (id)
        CROSS JOIN LATERAL (
            SELECT CASE n.state WHEN 'sent' THEN 0 WHEN 'unknown' THEN coalesce(n.est_tokens, 0)
                   ELSE coalesce(n.input_tokens, 0)::numeric + coalesce(n.output_tokens, 0) END AS tokens,
                   CASE n.state WHEN 'sent' THEN 0 WHEN 'unknown' THEN coalesce(n.est_cost_micro, 0)
                   ELSE coalesce(n.cost_micro, 0) END AS cost
        ) used_now
        CROSS JOIN LATERAL (
            SELECT CASE o.state WHEN 'sent' THEN 0 WHEN 'unknown' THEN coalesce(o.est_tokens, 0)
                   ELSE coalesce(o.input_tokens, 0)::numeric + coalesce(o.output_tokens, 0) END AS tokens,
                   CASE o.state WHEN 'sent' THEN 0 WHEN 'unknown' THEN coalesce(o.est_cost_micro, 0)
                   ELSE coalesce(o.cost_micro, 0) END AS cost
        ) used_was
        WHERE n.state <> o.state
    ),
    shares AS (
        SELECT 'model' AS scope, m.model AS name, m.day AS on_day, m.* FROM moved m WHERE m.day IS NOT NULL
        UNION ALL
        SELECT 'schedule', m.schedule, m.budget_day, m.* FROM moved m WHERE m.budget_day IS NOT NULL
    ),
    sums AS (
        SELECT q.scope, q.name, sum(s.in_flight) AS in_flight,
               -- A day that is over is counted no more.
               coalesce(sum(s.held_tokens) FILTER (WHERE s.on_day = q.day), 0) AS held_tokens,
               coalesce(sum(s.held_cost) FILTER (WHERE s.on_day = q.day), 0) AS held_cost,
               coalesce(sum(s.used_tokens) FILTER (WHERE s.on_day = q.day), 0) AS used_tokens,
               coalesce(sum(s.used_cost) FILTER (WHERE s.on_day = q.day), 0) AS used_cost,
               avg(s.took_ms) AS took_ms,
               bool_or(s.id = q.probe) AS probed,
               -- Unless that answer has just closed it anew.
               bool_or(s.id = q.probe AND s.answered AND q.closed_until <= belfry_now()) AS opened
        FROM llm_quotas q JOIN shares s ON s.scope = q.scope AND s.name = q.name
        GROUP BY q.scope, q.name
    )
    UPDATE llm_quotas q
    -- Never below nothing and never above a column: a row that somebody touched by hand, or a number
    -- that nobody can believe, must not keep an answer from being stored.
    SET in_flight = greatest(0, q.in_flight + s.in_flight),
        held_tokens = least(9223372036854775807, greatest(0, q.held_tokens + s.held_tokens)),
        held_cost_micro = least(9223372036854775807, greatest(0, q.held_cost_micro + s.held_cost)),
        used_tokens = least(9223372036854775807, greatest(0, q.used_tokens + s.used_tokens)),
        used_cost_micro = least(9223372036854775807, greatest(0, q.used_cost_micro + s.used_cost)),
        latency_ms = CASE WHEN s.took_ms IS NULL THEN q.latency_ms
                          WHEN q.latency_ms = 0 THEN s.took_ms
                          ELSE q.latency_ms * 0.8 + s.took_ms * 0.2 END,
        probe = CASE WHEN s.probed THEN NULL ELSE q.probe END,
        untried_until = CASE WHEN s.took_ms IS NULL THEN q.untried_until ELSE '-infinity' END,
        closed_at = CASE WHEN s.opened THEN NULL ELSE q.closed_at END,
        closed_until = CASE WHEN s.opened THEN NULL ELSE q.closed_until END,
        closed_endpoint = CASE WHEN s.opened THEN NULL ELSE q.closed_endpoint END,
        closed_reason = CASE WHEN s.opened THEN NULL ELSE q.closed_reason END
    FROM sums s WHERE q.scope = s.scope AND q.name = s.name;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION llm_calls_settle() IS 'keeps the counters of llm_quotas equal to the journal, whichever statement ends a call';
CREATE TRIGGER llm_calls_settle AFTER UPDATE ON llm_calls
    REFERENCING OLD TABLE AS was NEW TABLE AS is_now
    FOR EACH STATEMENT EXECUTE FUNCTION llm_calls_settle();

-- The journal goes with its tasks; what it cost stays.
CREATE TABLE llm_usage (
    day                date NOT NULL,
    model              text NOT NULL,
    schedule           text NOT NULL,
    task_type          text NOT NULL,
    calls              bigint NOT NULL,
    answered           bigint NOT NULL,
    failed             bigint NOT NULL,
    unknown            bigint NOT NULL,
    estimated          bigint NOT NULL,
    input_tokens       bigint NOT NULL,
    output_tokens      bigint NOT NULL,
    cached_tokens      bigint NOT NULL,
    reasoning_tokens   bigint NOT NULL,
    cost_micro         bigint NOT NULL,
    unknown_tokens     bigint NOT NULL,
    unknown_cost_micro bigint NOT NULL,
    PRIMARY KEY (day, model, schedule, task_type)
);
COMMENT ON TABLE llm_usage IS 'sums of the calls whose tasks were pruned, added by the statement that prunes them; never deleted';
COMMENT ON COLUMN llm_usage.day IS 'day that the calls counted on';
COMMENT ON COLUMN llm_usage.model IS 'model asked for';
COMMENT ON COLUMN llm_usage.schedule IS 'schedule of their tasks; empty for ad-hoc ones';
COMMENT ON COLUMN llm_usage.task_type IS 'type of their tasks';
COMMENT ON COLUMN llm_usage.calls IS 'how many';
COMMENT ON COLUMN llm_usage.answered IS 'of those, with an answer';
COMMENT ON COLUMN llm_usage.failed IS 'of those, refused or paid for nothing';
COMMENT ON COLUMN llm_usage.unknown IS 'of those, of unknown outcome';
COMMENT ON COLUMN llm_usage.estimated IS 'of those, whose tokens are our estimate';
COMMENT ON COLUMN llm_usage.input_tokens IS 'tokens in, as billed';
COMMENT ON COLUMN llm_usage.output_tokens IS 'tokens out, as billed';
COMMENT ON COLUMN llm_usage.cached_tokens IS 'of the input, read from a cache';
COMMENT ON COLUMN llm_usage.reasoning_tokens IS 'of the output, spent on reasoning';
COMMENT ON COLUMN llm_usage.cost_micro IS 'millionths of a US dollar';
COMMENT ON COLUMN llm_usage.unknown_tokens IS 'what those of unknown outcome may have used, by estimate';
COMMENT ON COLUMN llm_usage.unknown_cost_micro IS 'the cost of that';

-- A closed model is told like a dead letter. Kinds are words: what each means, its writer knows.
ALTER TABLE alerts DROP CONSTRAINT IF EXISTS alerts_kind_check;
ALTER TABLE alerts DROP CONSTRAINT IF EXISTS alerts_kind_known;
ALTER TABLE alerts ADD CONSTRAINT alerts_kind_word CHECK (kind ~ '^[a-z_]+$');
COMMENT ON COLUMN alerts.kind IS 'dead: a task was given up; quota: a model is closed until somebody opens it, or a daily budget has no room for a call; test: somebody tries the webhook; else the kind of its episodes';
