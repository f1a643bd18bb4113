-- Tasks: one row of state, the input beside it, the key that makes it unique, its attempts.

-- All SQL of the house reads time here. A test's database replaces the body by one with an offset,
-- so that a test moves the clock without touching the host.
CREATE FUNCTION belfry_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT clock_timestamp() $$;
COMMENT ON FUNCTION belfry_now() IS 'the only clock; hosts'' clocks are never compared';

-- The state row is narrow and has room on its page (fillfactor), so that most transitions are HOT
-- updates; what never changes lies in task_inputs, what comes at the end in task_results.
CREATE TABLE tasks (
    id                  uuid PRIMARY KEY,
    pool                text NOT NULL,
    schedule            text,
    state               text NOT NULL,
    run                 integer NOT NULL DEFAULT 0,
    failures            integer NOT NULL DEFAULT 0,
    crashes             integer NOT NULL DEFAULT 0,
    due_at              timestamptz NOT NULL,
    published_at        timestamptz,
    claim_token         uuid,
    incarnation         uuid,
    deadline_at         timestamptz,
    cancel_requested_at timestamptz,
    finished_at         timestamptz,
    progress_done       bigint,
    progress_failed     bigint,
    CONSTRAINT tasks_state_known CHECK (state IN
        ('scheduled', 'waiting', 'queued', 'running', 'retrying', 'completed', 'dead', 'cancelled')),
    CONSTRAINT tasks_running_is_claimed CHECK (
        (state = 'running') = (claim_token IS NOT NULL)
        AND (state = 'running') = (incarnation IS NOT NULL)
        AND (state = 'running') = (deadline_at IS NOT NULL)),
    CONSTRAINT tasks_finished_has_time CHECK (
        (state IN ('completed', 'dead', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT tasks_counts CHECK (run >= 0 AND failures >= 0 AND crashes >= 0)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);
COMMENT ON TABLE tasks IS 'where each task stands; every transition is one statement whose WHERE repeats state and token';
COMMENT ON COLUMN tasks.id IS 'UUIDv7 made by the enqueuer before the insert';
COMMENT ON COLUMN tasks.pool IS 'whose queue carries its message';
COMMENT ON COLUMN tasks.schedule IS 'schedule whose tick made it; NULL for ad-hoc tasks; overlap is judged by it';
COMMENT ON COLUMN tasks.state IS 'scheduled, waiting, queued, running, retrying, completed, dead, cancelled';
COMMENT ON COLUMN tasks.run IS 'number of the newest attempt row; each claim adds 1';
COMMENT ON COLUMN tasks.failures IS 'attempts that failed; retries are judged on these alone';
COMMENT ON COLUMN tasks.crashes IS 'attempts given back because their worker vanished, hung or forgot them';
COMMENT ON COLUMN tasks.due_at IS 'no claim before this instant';
COMMENT ON COLUMN tasks.published_at IS 'when a copy of its message was last confirmed by the broker; NULL asks the relay for one';
COMMENT ON COLUMN tasks.claim_token IS 'random identity of the running claim; every later write repeats it';
COMMENT ON COLUMN tasks.incarnation IS 'the worker process that runs it';
COMMENT ON COLUMN tasks.deadline_at IS 'timeout and grace after the claim; past it the task is given back even from a living worker';
COMMENT ON COLUMN tasks.cancel_requested_at IS 'somebody asked to end it; the running handler is told within a second';
COMMENT ON COLUMN tasks.finished_at IS 'set with completed, dead, cancelled';
COMMENT ON COLUMN tasks.progress_done IS 'items done, as the handler says; NULL until it says so';
COMMENT ON COLUMN tasks.progress_failed IS 'items failed, as the handler says';

-- Serves sweeps, relay and overlap. It names no column that changes while a task lives, so claims,
-- marks and retries stay HOT.
CREATE INDEX tasks_live ON tasks (schedule, id) WHERE finished_at IS NULL;

CREATE TABLE task_inputs (
    task_id         uuid PRIMARY KEY,
    name            text NOT NULL,
    execution_key   text NOT NULL,
    task_type       text NOT NULL,
    payload         jsonb NOT NULL,
    timeout_ms      bigint NOT NULL CHECK (timeout_ms > 0),
    max_retry       integer NOT NULL CHECK (max_retry >= 0),
    backoff_base_ms bigint NOT NULL CHECK (backoff_base_ms >= 0),
    backoff_max_ms  bigint NOT NULL CHECK (backoff_max_ms >= 0),
    at_most_once    boolean NOT NULL DEFAULT false,
    scheduled_for   timestamptz,
    traceparent     text,
    created_at      timestamptz NOT NULL
);
COMMENT ON TABLE task_inputs IS 'what was said when the task was created; never updated';
COMMENT ON COLUMN task_inputs.task_id IS 'the task';
COMMENT ON COLUMN task_inputs.name IS 'schedule''s name, or the task type of an ad-hoc task: scope of the execution key';
COMMENT ON COLUMN task_inputs.execution_key IS 'business identity of the work within the name';
COMMENT ON COLUMN task_inputs.task_type IS 'which handler runs it';
COMMENT ON COLUMN task_inputs.payload IS 'the handler''s input, at most 256 KiB; secrets only as secret:NAME';
COMMENT ON COLUMN task_inputs.timeout_ms IS 'milliseconds that one attempt may take';
COMMENT ON COLUMN task_inputs.max_retry IS 'retries after the first failure';
COMMENT ON COLUMN task_inputs.backoff_base_ms IS 'milliseconds before the first retry; doubles with each';
COMMENT ON COLUMN task_inputs.backoff_max_ms IS 'milliseconds that a delay never exceeds, jitter apart';
COMMENT ON COLUMN task_inputs.at_most_once IS 'never reruns after an unknown outcome';
COMMENT ON COLUMN task_inputs.scheduled_for IS 'planned instant of the tick that made it';
COMMENT ON COLUMN task_inputs.traceparent IS 'W3C trace context of the creation, sent with every message';
COMMENT ON COLUMN task_inputs.created_at IS 'when it was enqueued';
CREATE INDEX task_inputs_created ON task_inputs (created_at);

CREATE TABLE task_results (
    task_id uuid PRIMARY KEY,
    result  jsonb NOT NULL
);
COMMENT ON TABLE task_results IS 'the one committed result of a completed task';
COMMENT ON COLUMN task_results.task_id IS 'the task';
COMMENT ON COLUMN task_results.result IS 'what the handler returned';

CREATE TABLE execution_keys (
    name          text NOT NULL,
    execution_key text NOT NULL CHECK (octet_length(execution_key) BETWEEN 1 AND 255),
    payload_hash  bytea NOT NULL,
    task_id       uuid NOT NULL,
    created_at    timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL,
    PRIMARY KEY (name, execution_key)
);
COMMENT ON TABLE execution_keys IS 'one execution key, one task; outlives pruned tasks';
COMMENT ON COLUMN execution_keys.name IS 'scope of the key';
COMMENT ON COLUMN execution_keys.execution_key IS 'the key';
COMMENT ON COLUMN execution_keys.payload_hash IS 'SHA-256 of the payload with sorted keys: same key with another payload is refused';
COMMENT ON COLUMN execution_keys.task_id IS 'the task that owns the key';
COMMENT ON COLUMN execution_keys.created_at IS 'when it was taken';
COMMENT ON COLUMN execution_keys.expires_at IS 'may be pruned after this, but never while its task lives or is dead';

CREATE TABLE attempts (
    task_id       uuid NOT NULL,
    run           integer NOT NULL CHECK (run > 0),
    token         uuid NOT NULL,
    incarnation   uuid NOT NULL,
    worker        text NOT NULL,
    started_at    timestamptz NOT NULL,
    ended_at      timestamptz,
    outcome       text,
    error_class   text,
    error_message text,
    delay_ms      bigint,
    traceparent   text,
    PRIMARY KEY (task_id, run),
    CONSTRAINT attempts_outcome_known CHECK (outcome IN
        ('completed', 'retry', 'snooze', 'dead', 'cancelled', 'released', 'lease_expired', 'deadline', 'abandoned')),
    CONSTRAINT attempts_ended CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 70);
COMMENT ON TABLE attempts IS 'one row per claim: the audit trail that the user sees, and the proof for a repeated record';
COMMENT ON COLUMN attempts.task_id IS 'the task';
COMMENT ON COLUMN attempts.run IS 'number of the attempt, from 1';
COMMENT ON COLUMN attempts.token IS 'its claim token';
COMMENT ON COLUMN attempts.incarnation IS 'the process that ran it';
COMMENT ON COLUMN attempts.worker IS 'label of that process, for people';
COMMENT ON COLUMN attempts.started_at IS 'the claim';
COMMENT ON COLUMN attempts.ended_at IS 'the record, or the give-back';
COMMENT ON COLUMN attempts.outcome IS 'how it ended; lease_expired, deadline and abandoned are crashes; NULL while it runs';
COMMENT ON COLUMN attempts.error_class IS 'retryable, permanent, throttled, timeout, crashed, interrupted, unknown_outcome, invalid';
COMMENT ON COLUMN attempts.error_message IS 'for a person, without secrets';
COMMENT ON COLUMN attempts.delay_ms IS 'milliseconds until the next attempt, where there is one';
COMMENT ON COLUMN attempts.traceparent IS 'span of the attempt, for links and trace_id';

-- For people and reports: a task as one row.
CREATE VIEW task_overview AS
SELECT t.id, i.task_type, i.name, i.execution_key, t.pool, t.schedule, t.state, t.run, t.failures,
       t.crashes, t.due_at, i.scheduled_for, i.created_at, t.finished_at
FROM tasks t JOIN task_inputs i ON i.task_id = t.id;
COMMENT ON VIEW task_overview IS 'tasks with their inputs'' names, for people and reports';
