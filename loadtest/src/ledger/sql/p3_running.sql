-- A running task is in somebody's hands: its worker's row is there, so that a rescue can find it,
-- and neither its lease nor its deadline is long over while processes are there to sweep.
-- $1: seconds after which a sweep is late.
WITH clock AS MATERIALIZED (
    SELECT belfry_now() - make_interval(secs => $1::float8) AS late
),
swept AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM workers w, clock c WHERE w.fenced_at IS NULL
                   AND w.lease_until > belfry_now() AND w.started_at < c.late) AS by_somebody
)
SELECT format('task %s runs until %s on %s, whose lease ended at %s', t.id, t.deadline_at,
              coalesce(w.label, 'a worker without a row'), w.lease_until) AS offender,
       w.id IS NULL
           OR s.by_somebody AND (t.deadline_at < c.late OR least(w.lease_until, w.fenced_at) < c.late) AS broken
FROM tasks t LEFT JOIN workers w ON w.id = t.incarnation, clock c, swept s
WHERE t.finished_at IS NULL AND t.state = 'running'
