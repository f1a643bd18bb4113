-- A new incarnation. Its id is random, so a repeat is the same row.
INSERT INTO workers (id, role, label, version, pools, place, started_at, seen_at, lease_until)
SELECT $1, $2, $3, $4, $5, $7, n.now, n.now, n.now + make_interval(secs => $6::bigint / 1000.0)
FROM (SELECT belfry_now() AS now) n
ON CONFLICT (id) DO NOTHING
