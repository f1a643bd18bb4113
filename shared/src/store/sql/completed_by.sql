-- The proof that a claim completed its task: its own attempt says so.
SELECT a.run FROM attempts a
WHERE a.task_id = $1 AND a.token = $2 AND a.outcome = 'completed'
