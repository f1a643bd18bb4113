-- Processes that live, or whose end is news ($2 ms): a row for all incarnations of one label, as who was
-- cut off from the database registers anew. Gone is whose newest lease is over for $1 ms without a goodbye;
-- what became of an earlier incarnation is no news when the process came back.
WITH clock AS MATERIALIZED (SELECT belfry_now() AS now)
SELECT w.role, w.label, array_agg(w.id ORDER BY w.started_at DESC) AS ids,
       min(w.started_at) AS began_at, max(w.started_at) AS started_at, max(w.seen_at) AS seen_at,
       bool_or(w.fenced_at IS NULL AND w.lease_until > c.now) AS alive,
       (array_agg(w.stopped_at ORDER BY w.started_at DESC))[1] IS NULL
           AND max(w.lease_until) < c.now - make_interval(secs => $1::bigint / 1000.0) AS gone
FROM workers w, clock c
GROUP BY w.role, w.label, c.now
HAVING max(w.lease_until) > c.now - make_interval(secs => $2::bigint / 1000.0)
ORDER BY seen_at
