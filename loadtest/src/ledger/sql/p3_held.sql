-- What Postgres holds back is let go in time: a scheduled task an hour before it is due, a waiting
-- one when nothing of its schedule is before it. $1: seconds after which that is late.
WITH clock AS MATERIALIZED (
    SELECT belfry_now() - make_interval(secs => $1::float8) AS late
),
swept AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM workers w, clock c WHERE w.fenced_at IS NULL
                   AND w.lease_until > belfry_now() AND w.started_at < c.late) AS by_somebody
)
SELECT format('task %s is %s and due at %s', t.id, t.state, t.due_at) AS offender,
       s.by_somebody AND CASE t.state
           WHEN 'scheduled' THEN t.due_at < c.late + interval '1 hour'
           ELSE NOT EXISTS (SELECT FROM tasks o WHERE o.schedule = t.schedule AND o.id <> t.id
                            AND (o.finished_at IS NULL OR o.finished_at > c.late)) END AS broken
FROM tasks t, clock c, swept s
WHERE t.finished_at IS NULL AND t.state IN ('scheduled', 'waiting')
