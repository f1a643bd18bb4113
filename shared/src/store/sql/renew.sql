-- Zero rows: the identity is over for ever; take a new one.
UPDATE workers SET seen_at = belfry_now(), lease_until = belfry_now() + make_interval(secs => $2::bigint / 1000.0)
WHERE id = $1 AND fenced_at IS NULL AND lease_until > belfry_now()
RETURNING draining
