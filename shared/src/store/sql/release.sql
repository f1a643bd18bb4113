-- What Postgres holds and is ready leaves its hands, and the relay publishes it: scheduled tasks that
-- are due within the hour, and of each schedule the oldest waiting task once nothing older runs.
UPDATE tasks t
SET state = 'queued', published_at = NULL,
    due_at = CASE WHEN t.state = 'waiting' THEN greatest(t.due_at, belfry_now()) ELSE t.due_at END
WHERE t.finished_at IS NULL
  AND ((t.state = 'scheduled' AND t.due_at <= belfry_now() + interval '1 hour')
    OR (t.state = 'waiting' AND NOT EXISTS (
            SELECT FROM tasks o
            WHERE o.schedule = t.schedule AND o.finished_at IS NULL AND o.id < t.id)))
RETURNING t.id
