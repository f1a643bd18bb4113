-- Processes, newest first, with what each runs now.
SELECT w.id, w.role, w.label, w.version, w.pools, w.started_at, w.seen_at, w.draining,
       w.fenced_at IS NULL AND w.lease_until > belfry_now() AS alive, w.stopped_at,
       (SELECT count(*) FROM tasks t
        WHERE t.finished_at IS NULL AND t.state = 'running' AND t.incarnation = w.id) AS running
FROM workers w
WHERE $1 OR (w.fenced_at IS NULL AND w.lease_until > belfry_now())
ORDER BY w.started_at DESC
LIMIT 200
