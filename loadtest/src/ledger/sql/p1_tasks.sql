-- A schedule's task was made by exactly one tick, the one of its own instant: two ticks never share
-- a new task, and no task comes from nowhere. A renamed schedule has unfinished tasks of its former name.
SELECT format('task %s of %s for %s was made by %s ticks', t.id, t.schedule, i.scheduled_for, count(k.task_id)) AS offender,
       count(k.task_id) <> 1 OR bool_or(k.planned_at IS DISTINCT FROM i.scheduled_for) AS broken
FROM tasks t
JOIN task_inputs i ON i.task_id = t.id
LEFT JOIN schedules s ON s.name = t.schedule
LEFT JOIN ticks k ON k.task_id = t.id AND k.outcome = 'enqueued'
    AND (k.schedule = t.schedule OR k.schedule = ANY (s.formerly))
WHERE t.schedule IS NOT NULL
GROUP BY t.id, i.scheduled_for
