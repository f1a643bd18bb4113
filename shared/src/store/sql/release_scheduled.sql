-- What is due within the hour leaves the database's hands: the relay publishes it.
UPDATE tasks t SET state = 'queued', published_at = NULL
WHERE t.finished_at IS NULL AND t.state = 'scheduled' AND t.due_at <= belfry_now() + interval '1 hour'
RETURNING t.id
