-- What Postgres holds and is ready leaves its hands, and the relay publishes it: scheduled tasks that
-- are due within the hour, and of each schedule the oldest waiting task once nothing else runs. Oldest by
-- this server's clock: the ids bear those of the hosts that led.
UPDATE tasks t
SET state = 'queued', published_at = NULL,
    due_at = CASE WHEN t.state = 'waiting' THEN belfry_now() ELSE t.due_at END
WHERE t.finished_at IS NULL
  AND ((t.state = 'scheduled' AND t.due_at <= belfry_now() + interval '1 hour')
    OR (t.state = 'waiting' AND NOT EXISTS (
            SELECT FROM tasks o
            JOIN task_inputs theirs ON theirs.task_id = o.id
            JOIN task_inputs ours ON ours.task_id = t.id
            WHERE o.schedule = t.schedule AND o.finished_at IS NULL AND o.id <> t.id
              AND (o.state <> 'waiting' OR (theirs.created_at, o.id) < (ours.created_at, t.id)))))
RETURNING t.id
