-- Which of these keys are taken, and by whom.
SELECT k.execution_key, k.task_id, t.state
FROM execution_keys k LEFT JOIN tasks t ON t.id = k.task_id
WHERE k.name = $1 AND k.execution_key = ANY ($2::text[])
