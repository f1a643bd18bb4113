-- Copies of open letters that the broker has confirmed: those of tasks, and those of all.
SELECT count(*) FILTER (WHERE task_id IS NOT NULL) AS tasks, count(*) AS letters FROM dead_letters
WHERE resolved_at IS NULL AND published_at IS NOT NULL
