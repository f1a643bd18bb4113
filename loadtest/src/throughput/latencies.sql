-- Milliseconds from a task's row to its completed row, both by the database's clock.
SELECT percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (
           ORDER BY extract(epoch FROM t.finished_at - i.created_at)::float8 * 1000) AS percentiles
FROM tasks t JOIN task_inputs i ON i.task_id = t.id
WHERE i.name = $1 AND t.state = 'completed'
