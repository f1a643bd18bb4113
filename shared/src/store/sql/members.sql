-- Processes that live or vanished lately: a lease that is over $1 ms ago and no goodbye. Older ones
-- are nobody's news ($2 ms).
SELECT w.id, w.role, w.label, w.started_at, w.seen_at,
       w.fenced_at IS NULL AND w.lease_until > belfry_now() AS alive
FROM workers w
WHERE w.stopped_at IS NULL AND w.lease_until > belfry_now() - make_interval(secs => $2::bigint / 1000.0)
  AND (w.fenced_at IS NULL AND w.lease_until > belfry_now()
       OR w.lease_until < belfry_now() - make_interval(secs => $1::bigint / 1000.0))
ORDER BY w.seen_at
