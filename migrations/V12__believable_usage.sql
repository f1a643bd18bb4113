-- Tokens that no model can have used, as an endpoint once named them, filled every sum that they were
-- added to: the model's counters, its days, its pruned sums. Such a number counts as not given from now
-- on; here the counters learn to bear one, and those that are written are put right.

CREATE OR REPLACE FUNCTION llm_calls_settle() RETURNS trigger LANGUAGE plpgsql AS $$
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

COMMENT ON COLUMN llm_quotas.over_budget IS 'what becomes of a task whose call may need more than is left of the day: park, dead, or downgrade: MODEL';
COMMENT ON COLUMN llm_calls.usage_estimated IS 'the endpoint named no usage, or one that cannot be; the tokens are our estimate';
COMMENT ON COLUMN alerts.kind IS 'dead: a task was given up; quota: a model is closed until somebody opens it, or a daily budget has no room for a call; test: somebody tries the webhook; else the kind of its episodes';

-- What was stored before: the estimate in place of what cannot be. No state changes, so the counters
-- stay as they are.
UPDATE llm_calls c
SET input_tokens = CASE WHEN c.input_tokens BETWEEN 0 AND 1000000000 THEN c.input_tokens ELSE 0 END,
    output_tokens = CASE WHEN c.output_tokens BETWEEN 0 AND 2000000000 THEN c.output_tokens ELSE coalesce(c.est_tokens, 0) END,
    cached_tokens = CASE WHEN c.cached_tokens BETWEEN 0 AND 1000000000 THEN c.cached_tokens END,
    reasoning_tokens = CASE WHEN c.reasoning_tokens BETWEEN 0 AND 1000000000 THEN c.reasoning_tokens END,
    cost_micro = CASE WHEN c.cost_micro IS NOT NULL THEN coalesce(c.est_cost_micro, 0) END,
    usage_estimated = true
WHERE c.input_tokens NOT BETWEEN 0 AND 1000000000 OR c.output_tokens NOT BETWEEN 0 AND 2000000000
   OR c.cached_tokens NOT BETWEEN 0 AND 1000000000 OR c.reasoning_tokens NOT BETWEEN 0 AND 1000000000
   OR c.cost_micro NOT BETWEEN 0 AND 1000000000000000;

-- A counter beyond what a year of calls can use is one of those: it is counted anew.
UPDATE llm_quotas q
SET used_tokens = least(9223372036854775807, j.tokens), used_cost_micro = least(9223372036854775807, j.cost)
FROM llm_quotas k
CROSS JOIN LATERAL (
    SELECT coalesce(sum(CASE c.state WHEN 'sent' THEN 0 WHEN 'unknown' THEN coalesce(c.est_tokens, 0)
                        ELSE coalesce(c.input_tokens, 0)::numeric + coalesce(c.output_tokens, 0) END), 0) AS tokens,
           coalesce(sum(CASE c.state WHEN 'sent' THEN 0 WHEN 'unknown' THEN coalesce(c.est_cost_micro, 0)
                        ELSE coalesce(c.cost_micro, 0) END), 0) AS cost
    FROM llm_calls c
    WHERE k.scope = 'model' AND c.model = k.name AND c.day = k.day
       OR k.scope = 'schedule' AND c.schedule = k.name AND c.budget_day = k.day
) j
WHERE q.scope = k.scope AND q.name = k.name
  AND (q.used_tokens > 1000000000000000 OR q.used_cost_micro > 1000000000000000000);

-- Nobody knows any more what these were made of.
UPDATE llm_usage u
SET input_tokens = CASE WHEN u.input_tokens > 1000000000000000 THEN 0 ELSE u.input_tokens END,
    output_tokens = CASE WHEN u.output_tokens > 1000000000000000 THEN 0 ELSE u.output_tokens END,
    cached_tokens = CASE WHEN u.cached_tokens > 1000000000000000 THEN 0 ELSE u.cached_tokens END,
    reasoning_tokens = CASE WHEN u.reasoning_tokens > 1000000000000000 THEN 0 ELSE u.reasoning_tokens END,
    cost_micro = CASE WHEN u.cost_micro > 1000000000000000000 THEN 0 ELSE u.cost_micro END
WHERE greatest(u.input_tokens, u.output_tokens, u.cached_tokens, u.reasoning_tokens) > 1000000000000000
   OR u.cost_micro > 1000000000000000000;
