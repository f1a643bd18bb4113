-- Incarnations that live, or whose lease has not been over for longer than $3 ms: who came in whose place is
-- judged by their times, since a label may be shared. Gone is whose lease is over for $1 ms without a
-- goodbye, as long as that is news ($2 ms). A goodbye is the last that was seen of who said it.
WITH clock AS MATERIALIZED (SELECT belfry_now() AS now)
SELECT w.id, w.role, w.label, w.started_at, greatest(w.seen_at, w.stopped_at) AS seen_at,
       w.stopped_at IS NOT NULL AS stopped,
       w.stopped_at IS NULL
           AND w.lease_until < c.now - make_interval(secs => $1::bigint / 1000.0)
           AND w.lease_until > c.now - make_interval(secs => $2::bigint / 1000.0) AS gone
FROM workers w, clock c
WHERE w.lease_until > c.now - make_interval(secs => $3::bigint / 1000.0)
ORDER BY w.started_at, w.id
