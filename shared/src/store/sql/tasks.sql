-- Tasks, newest first.
SELECT t.id, n.name, n.execution_key, n.task_type, t.pool, t.schedule, t.state, t.run, t.failures,
       t.crashes, t.due_at, n.created_at, t.finished_at, t.cancel_requested_at, t.start_by,
       a.worker, a.error_class, a.error_message
FROM tasks t
JOIN task_inputs n ON n.task_id = t.id
LEFT JOIN attempts a ON a.task_id = t.id AND a.run = t.run
WHERE ($1::text IS NULL OR t.state = $1) AND ($2::text IS NULL OR n.task_type = $2)
  AND ($3::text IS NULL OR n.name = $3) AND ($4::text IS NULL OR n.execution_key = $4)
ORDER BY t.id DESC LIMIT $5
