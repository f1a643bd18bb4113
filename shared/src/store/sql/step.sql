-- A kept step of a task.
SELECT input_hash, result, run, took_ms FROM steps WHERE task_id = $1 AND name = $2
