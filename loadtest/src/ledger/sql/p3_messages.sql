-- A task that waits for a worker is unpublished (the relay's work), not yet late, or has a message.
-- Past that the sweep for lost messages failed it, unless no process has been there to sweep.
-- $1, $2: messages ready in each pool's queue; $3: seconds after which a task is late.
WITH clock AS MATERIALIZED (
    SELECT belfry_now() - make_interval(secs => $3::float8) AS late
),
swept AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM workers w, clock c WHERE w.fenced_at IS NULL
                   AND w.lease_until > belfry_now() AND w.started_at < c.late) AS by_somebody
)
SELECT format('task %s was published at %s and its queue in pool %s is empty', t.id, t.published_at, t.pool) AS offender,
       coalesce(t.published_at < c.late, false) AND t.due_at < c.late
           AND coalesce(q.ready, 0) = 0 AND s.by_somebody AS broken
FROM tasks t
LEFT JOIN unnest($1::text[], $2::bigint[]) AS q (pool, ready) ON q.pool = t.pool, clock c, swept s
WHERE t.finished_at IS NULL AND t.state IN ('queued', 'retrying')
