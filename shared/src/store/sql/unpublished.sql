-- Continues look.sql and named.sql: the messages of what still has none.
SELECT t.id, t.pool, t.schedule, t.run, t.failures, t.priority,
       (extract(epoch FROM t.due_at - belfry_now()) * 1000)::bigint AS due_in_ms,
       n.name, n.execution_key, n.task_type, n.max_retry, n.scheduled_for, n.traceparent,
       a.traceparent AS previous_attempt, a.worker AS last_worker, a.error_class, a.error_message
FROM wanted w
JOIN tasks t ON t.id = w.id
JOIN task_inputs n ON n.task_id = t.id
LEFT JOIN attempts a ON a.task_id = t.id AND a.run = t.run
WHERE t.finished_at IS NULL AND t.published_at IS NULL AND t.state IN ('queued', 'retrying')
ORDER BY t.priority DESC
