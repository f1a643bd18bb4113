-- Takes tasks for an incarnation that is registered, unfenced and unexpired (a plain EXISTS: a lock
-- on the worker's row would hold up its heartbeat). A repeat with the same token gives the same
-- answer; a row that is running under another token is never taken over, whatever its lease; a first
-- start after the task's deadline is refused.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS i (id, token)
),
alive AS MATERIALIZED (
    SELECT w.label FROM workers w
    WHERE w.id = $3 AND w.fenced_at IS NULL AND w.lease_until > belfry_now()
),
taken AS (
    UPDATE tasks t
    SET state = 'running', run = t.run + 1, claim_token = i.token, incarnation = $3,
        deadline_at = belfry_now() + make_interval(secs => (n.timeout_ms + $4::bigint) / 1000.0)
    FROM input i JOIN task_inputs n ON n.task_id = i.id
    WHERE t.id = i.id AND t.state IN ('queued', 'retrying') AND t.due_at <= belfry_now()
      AND t.cancel_requested_at IS NULL AND EXISTS (SELECT FROM alive)
      AND (t.start_by IS NULL OR t.run > 0 OR t.start_by >= belfry_now())
    RETURNING t.id, t.run, t.failures, t.crashes, t.due_at
),
logged AS (
    INSERT INTO attempts (task_id, run, token, incarnation, worker, started_at, traceparent)
    SELECT k.id, k.run, i.token, $3, a.label, belfry_now(), NULL
    FROM taken k JOIN input i ON i.id = k.id, alive a
    ON CONFLICT (task_id, run) DO NOTHING
)
SELECT i.id, EXISTS (SELECT FROM alive) AS alive,
       k.id IS NOT NULL OR (t.state = 'running' AND t.claim_token = i.token) AS mine,
       t.state, t.pool, t.schedule,
       coalesce(k.run, t.run) AS run, coalesce(k.failures, t.failures) AS failures,
       coalesce(k.crashes, t.crashes) AS crashes,
       (extract(epoch FROM t.due_at - belfry_now()) * 1000)::bigint AS due_in_ms,
       t.cancel_requested_at IS NOT NULL AS cancelling, t.priority,
       coalesce(t.run = 0 AND t.start_by < belfry_now(), false) AS too_late,
       n.name, n.execution_key, n.task_type, n.payload, n.timeout_ms, n.max_retry, n.backoff_base_ms,
       n.backoff_max_ms, n.at_most_once, n.scheduled_for, n.traceparent,
       p.traceparent AS previous_attempt, p.worker AS last_worker,
       p.error_class, p.error_message
FROM input i
LEFT JOIN taken k ON k.id = i.id
LEFT JOIN tasks t ON t.id = i.id
LEFT JOIN task_inputs n ON n.task_id = i.id
LEFT JOIN attempts p ON p.task_id = i.id AND p.run = t.run AND t.state <> 'running'
