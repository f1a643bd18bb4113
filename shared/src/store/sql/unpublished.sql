-- What has no confirmed message: the relay's work. Ids may be named ($1) to look at just those; a
-- backup leaves what is not late by $3 ms to the leader's relay.
SELECT t.id, t.pool, t.schedule, t.run, t.failures,
       (extract(epoch FROM t.due_at - belfry_now()) * 1000)::bigint AS due_in_ms,
       n.name, n.execution_key, n.task_type, n.max_retry, n.scheduled_for, n.traceparent,
       a.traceparent AS previous_attempt, a.worker AS last_worker, a.error_class, a.error_message
FROM tasks t
JOIN task_inputs n ON n.task_id = t.id
LEFT JOIN attempts a ON a.task_id = t.id AND a.run = t.run
WHERE t.finished_at IS NULL AND t.published_at IS NULL AND t.state IN ('queued', 'retrying')
  AND ($1::uuid[] IS NULL OR t.id = ANY ($1))
  AND ($3::bigint = 0 OR t.due_at < belfry_now() - make_interval(secs => $3::bigint / 1000.0))
LIMIT $2
