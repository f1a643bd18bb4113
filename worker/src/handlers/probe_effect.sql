-- What an attempt leaves behind if and only if it is the one that completes its task.
INSERT INTO {table} (task_id, run, token, execution_key) VALUES ($1, $2, $3, $4)
