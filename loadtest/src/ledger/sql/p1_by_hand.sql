-- What people ask for is never a tick: a backfill's instant is one that its schedule's ticks have
-- decided without a task, or never knew. $1: seconds that finished tasks are kept.
SELECT format('%s at %s was backfilled as task %s, and its tick made task %s', h.schedule, h.scheduled_for,
              h.task_id, k.task_id) AS offender,
       k.outcome IS NOT DISTINCT FROM 'enqueued' AND k.task_id <> h.task_id AS broken
FROM by_hand h
LEFT JOIN ticks k ON k.schedule = h.schedule AND k.planned_at = h.scheduled_for
WHERE h.kind = 'backfill' AND h.asked_at > belfry_now() - make_interval(secs => $1::float8)
