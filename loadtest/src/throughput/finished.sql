-- How many of a name completed, and when the first did.
SELECT count(*) FILTER (WHERE t.state = 'completed') AS completed, min(t.finished_at) AS first_at
FROM tasks t JOIN task_inputs i ON i.task_id = t.id WHERE i.name = $1
