-- Tasks by pool, type and state.
SELECT t.pool, n.task_type, t.state, count(*) AS tasks
FROM tasks t JOIN task_inputs n ON n.task_id = t.id
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
