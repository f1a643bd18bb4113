-- Tasks past due, marked published, whose message is gone (broker wiped, purged, a crash between
-- commit and publish): clears the mark, so that the relay publishes. One new copy per task per
-- grace: the mark itself is the time of the last copy. Nothing while the broker's ready messages in the
-- pool ($3), with what its workers may have been handed and not yet claimed (their slots), cover the
-- tasks outstanding: that is a backlog, not a loss. What is lost beside a backlog is found when the
-- backlog is gone.
WITH late AS MATERIALIZED (
    SELECT t.id, t.run, t.pool FROM tasks t
    WHERE t.finished_at IS NULL AND t.state IN ('queued', 'retrying')
      AND t.published_at < belfry_now() - make_interval(secs => $1::bigint / 1000.0)
      AND t.due_at < belfry_now() - make_interval(secs => $1::bigint / 1000.0)
    FOR UPDATE SKIP LOCKED
),
outstanding AS (
    SELECT pool, count(*) AS tasks FROM tasks
    WHERE finished_at IS NULL AND state IN ('queued', 'retrying') AND published_at IS NOT NULL
      AND due_at < belfry_now()
    GROUP BY pool
),
handed AS (
    SELECT s.key AS pool, sum(s.value::bigint) AS slots
    FROM workers w, jsonb_each_text(w.pools) s
    WHERE w.role = 'worker' AND w.fenced_at IS NULL AND w.lease_until > belfry_now()
    GROUP BY s.key
)
UPDATE tasks t SET published_at = NULL
FROM late l JOIN outstanding o ON o.pool = l.pool
JOIN unnest($2::text[], $3::bigint[]) AS q (pool, ready) ON q.pool = l.pool
LEFT JOIN handed h ON h.pool = l.pool
WHERE t.id = l.id AND t.run = l.run AND t.state IN ('queued', 'retrying')
  AND (q.ready = 0 OR q.ready + coalesce(h.slots, 0) < o.tasks)
RETURNING t.id
