-- Which of these keys are taken, and by whom; what a schedule took under a name it had before counts.
SELECT DISTINCT ON (k.execution_key) k.execution_key, k.task_id, t.state
FROM execution_keys k LEFT JOIN tasks t ON t.id = k.task_id
WHERE k.execution_key = ANY ($2::text[])
  AND (k.name = $1 OR k.name = ANY (SELECT unnest(s.formerly) FROM schedules s WHERE s.name = $1))
ORDER BY k.execution_key, k.name <> $1, k.created_at DESC
