-- Sends a dead task again: the letter is closed and the task queued in one statement, once.
-- Attempts, steps and stored model answers stay, so nothing is paid again. A task ($3) may be named:
-- a copy that was moved by hand replays only the task that it points to.
WITH closed AS (
    UPDATE dead_letters l
    SET resolved_at = belfry_now(), resolution = 'replayed', resolved_by = $2
    FROM tasks t
    WHERE l.id = $1 AND l.resolved_at IS NULL AND t.id = l.task_id AND t.state = 'dead'
      AND ($3::uuid IS NULL OR t.id = $3)
    RETURNING l.task_id
)
UPDATE tasks t
SET state = 'queued', finished_at = NULL, failures = 0, crashes = 0, due_at = belfry_now(),
    published_at = NULL, cancel_requested_at = NULL
FROM closed c WHERE t.id = c.task_id AND t.state = 'dead'
RETURNING t.id
