-- Open dead letters whose copy is not in the dead queue yet. Whoever recorded the death publishes it
-- itself, so that only what is older than $2 ms is the relay's.
SELECT l.id AS dead_letter, t.id, t.pool, t.schedule, t.run, t.failures, t.priority,
       n.name, n.execution_key, n.task_type, n.max_retry, n.scheduled_for, n.traceparent,
       a.traceparent AS previous_attempt, a.worker AS last_worker, l.error_class, l.error_message
FROM dead_letters l
JOIN tasks t ON t.id = l.task_id
JOIN task_inputs n ON n.task_id = l.task_id
LEFT JOIN attempts a ON a.task_id = l.task_id AND a.run = l.run
WHERE l.resolved_at IS NULL AND l.published_at IS NULL AND t.state = 'dead'
  AND l.created_at < belfry_now() - make_interval(secs => $2::bigint / 1000.0)
ORDER BY l.id
LIMIT $1
