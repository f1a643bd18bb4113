-- The copy of a dead letter was confirmed. One that was resolved meanwhile is marked too: its copy is
-- to be taken off again.
UPDATE dead_letters SET published_at = belfry_now(), removed_at = NULL
WHERE id = ANY ($1::bigint[])
