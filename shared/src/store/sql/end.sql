-- Ends attempts that did not complete: retry, snooze, release, death, cancellation. A task whose
-- cancellation was requested ends as cancelled whatever the attempt says. The mark is cleared in
-- the same statement, so that the relay publishes if this process does not live to.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[])
        AS i (id, token, outcome, delay_ms, error_class, error_message, traceparent)
),
moved AS (
    UPDATE tasks t
    SET state = CASE
            WHEN t.cancel_requested_at IS NOT NULL OR i.outcome = 'cancelled' THEN 'cancelled'
            WHEN i.outcome = 'dead' THEN 'dead'
            WHEN i.delay_ms > 3600000 THEN 'scheduled'
            WHEN i.outcome = 'retry' THEN 'retrying'
            ELSE 'queued' END,
        finished_at = CASE
            WHEN t.cancel_requested_at IS NOT NULL OR i.outcome IN ('cancelled', 'dead') THEN belfry_now() END,
        failures = t.failures + CASE WHEN i.outcome IN ('retry', 'dead') THEN 1 ELSE 0 END,
        due_at = belfry_now() + make_interval(secs => coalesce(i.delay_ms, 0) / 1000.0),
        published_at = NULL, claim_token = NULL, incarnation = NULL, deadline_at = NULL
    FROM input i
    WHERE t.id = i.id AND t.state = 'running' AND t.claim_token = i.token
    RETURNING t.id, t.run, t.failures, t.state, t.pool, t.schedule, t.due_at, t.priority
),
ended AS (
    UPDATE attempts a
    -- The instant from which the delay counts, not another reading of the clock: a busy server may be
    -- a second between the two, and the next attempt would look as if it had come early.
    SET ended_at = m.due_at - make_interval(secs => coalesce(i.delay_ms, 0) / 1000.0),
        outcome = CASE WHEN m.state = 'cancelled' THEN 'cancelled' ELSE i.outcome END,
        error_class = i.error_class, error_message = i.error_message,
        delay_ms = CASE WHEN m.state IN ('cancelled', 'dead') THEN NULL ELSE i.delay_ms END,
        traceparent = i.traceparent
    FROM moved m JOIN input i ON i.id = m.id
    WHERE a.task_id = m.id AND a.run = m.run
),
-- What was asked of a model and not answered may have been billed.
asked AS (
    UPDATE llm_calls c
    SET state = 'unknown', ended_at = belfry_now(), error_class = 'unknown_outcome',
        error_message = 'the attempt ended before the answer was stored; the call may have been billed'
    FROM moved m WHERE c.task_id = m.id AND c.state = 'sent'
),
letters AS (
    INSERT INTO dead_letters AS l (task_id, run, error_class, error_message, created_at)
    SELECT m.id, m.run, coalesce(i.error_class, 'permanent'), coalesce(i.error_message, ''), belfry_now()
    FROM moved m JOIN input i ON i.id = m.id WHERE m.state = 'dead'
    ON CONFLICT (task_id, run) DO NOTHING
    RETURNING l.id, l.task_id
),
told AS (
    INSERT INTO alerts (kind, dead_letter_id, text, created_at, next_try_at)
    SELECT 'dead', l.id,
           format('Dead letter %s: task %s of %s gave up after attempt %s (%s: %s)', l.id, l.task_id,
                  n.name, m.run, i.error_class, left(i.error_message, 500)),
           belfry_now(), belfry_now()
    FROM letters l JOIN moved m ON m.id = l.task_id JOIN input i ON i.id = l.task_id
    JOIN task_inputs n ON n.task_id = l.task_id
    ON CONFLICT (dead_letter_id, seq) DO NOTHING
)
SELECT i.id, m.id IS NOT NULL AS recorded, a.outcome AS earlier,
       coalesce(m.state, t.state) AS state, coalesce(m.run, t.run) AS run,
       coalesce(m.failures, t.failures) AS failures, coalesce(m.pool, t.pool) AS pool,
       coalesce(m.schedule, t.schedule) AS schedule, coalesce(m.priority, t.priority) AS priority,
       (extract(epoch FROM coalesce(m.due_at, t.due_at) - belfry_now()) * 1000)::bigint AS due_in_ms,
       coalesce(l.id, d.id) AS dead_letter,
       n.name, n.execution_key, n.task_type, n.max_retry, n.scheduled_for, n.traceparent,
       i.traceparent AS previous_attempt, w.worker AS last_worker, i.error_class, i.error_message
FROM input i
LEFT JOIN moved m ON m.id = i.id
LEFT JOIN letters l ON l.task_id = i.id
LEFT JOIN tasks t ON t.id = i.id
LEFT JOIN task_inputs n ON n.task_id = i.id
LEFT JOIN attempts w ON w.task_id = i.id AND w.token = i.token
-- A repeat after a lost answer: this claim's row is ended already, by us. Or the handler completed
-- in a transaction of its own and was stopped before it could say so.
LEFT JOIN attempts a ON a.task_id = i.id AND a.token = i.token AND m.id IS NULL
    AND a.outcome IN ('retry', 'snooze', 'dead', 'cancelled', 'released', 'completed')
LEFT JOIN dead_letters d ON d.task_id = i.id AND d.run = a.run AND l.id IS NULL
