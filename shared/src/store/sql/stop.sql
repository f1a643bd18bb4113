-- A process that stops in good order fences itself, so that nothing waits for its lease.
UPDATE workers SET stopped_at = belfry_now(), fenced_at = coalesce(fenced_at, belfry_now())
WHERE id = $1
RETURNING id
