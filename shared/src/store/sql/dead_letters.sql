-- Dead letters, newest first: the open ones, or all, or one.
SELECT l.id, l.task_id, l.run, l.error_class, l.error_message, l.body, l.created_at, l.claimed_by,
       l.claimed_at, l.resolved_at, l.resolved_by, l.resolution,
       n.name, n.task_type, n.execution_key, t.failures, t.crashes
FROM dead_letters l
LEFT JOIN tasks t ON t.id = l.task_id
LEFT JOIN task_inputs n ON n.task_id = l.task_id
WHERE ($1 OR l.resolved_at IS NULL) AND ($2::bigint IS NULL OR l.id = $2)
  AND ($3::text IS NULL OR n.task_type = $3) AND ($4::text IS NULL OR n.name = $4)
ORDER BY l.id DESC LIMIT $5
