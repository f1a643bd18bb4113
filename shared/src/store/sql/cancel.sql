-- Cancels: at once where no handler runs, else the wish is kept and the handler is told.
UPDATE tasks t
SET cancel_requested_at = coalesce(t.cancel_requested_at, belfry_now()),
    state = CASE WHEN t.state = 'running' THEN t.state ELSE 'cancelled' END,
    finished_at = CASE WHEN t.state = 'running' THEN NULL ELSE belfry_now() END
WHERE t.id = $1 AND t.finished_at IS NULL
RETURNING t.state
