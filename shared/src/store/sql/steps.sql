-- All kept steps of a task.
SELECT name, result FROM steps WHERE task_id = $1 ORDER BY name
