-- Which requests have their tasks.
SELECT execution_key FROM task_inputs WHERE name = 'probe' AND execution_key = ANY ($1)
