-- Copies of tasks' open letters that the broker has confirmed.
SELECT count(*) AS copies FROM dead_letters
WHERE resolved_at IS NULL AND published_at IS NOT NULL AND task_id IS NOT NULL
