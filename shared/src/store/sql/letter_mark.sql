-- The copy of a dead letter was confirmed.
UPDATE dead_letters SET published_at = belfry_now()
WHERE id = ANY ($1::bigint[]) AND resolved_at IS NULL
RETURNING id
