-- Takes or keeps the lead. Zero rows: another leads. A taker waits for a tick statement in flight
-- (it holds the row FOR SHARE), so that no tick of the old term commits after the new term began.
INSERT INTO leadership AS l (name, token, incarnation, label, epoch, since, lease_until)
SELECT 'producer', $1, $2, $3, 1, n.now, n.now + make_interval(secs => $4::bigint / 1000.0)
FROM (SELECT belfry_now() AS now) n
ON CONFLICT (name) DO UPDATE
SET token = excluded.token, incarnation = excluded.incarnation, label = excluded.label,
    epoch = l.epoch + CASE WHEN l.token = excluded.token THEN 0 ELSE 1 END,
    since = CASE WHEN l.token = excluded.token THEN l.since ELSE excluded.since END,
    lease_until = excluded.lease_until
WHERE l.token = excluded.token OR l.lease_until <= belfry_now()
RETURNING l.epoch, belfry_now() AS now
