-- One alert about episodes of one kind, written with what it tells of.
INSERT INTO alerts (kind, stage, subjects, text, created_at, next_try_at)
SELECT $1, $2, $3::text[], $4, n.now, n.now FROM (SELECT belfry_now() AS now) n
RETURNING id
