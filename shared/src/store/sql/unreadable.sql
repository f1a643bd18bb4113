-- A message that points to no task: kept for eyes, without a task.
INSERT INTO dead_letters (task_id, run, error_class, error_message, body, created_at, published_at)
VALUES (NULL, NULL, 'invalid', $1, $2, belfry_now(), belfry_now())
RETURNING id
