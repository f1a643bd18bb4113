-- A schedule's task was made by exactly one tick, the one of its own instant, or by one person who
-- asked for it: two ticks never share a new task, and no task comes from nowhere. A renamed schedule
-- has unfinished tasks of its former name.
WITH made AS (
    SELECT task_id, schedule, planned_at FROM ticks WHERE outcome = 'enqueued'
    UNION ALL
    SELECT task_id, schedule, scheduled_for FROM by_hand
)
SELECT format('task %s of %s for %s was made by %s ticks and runs by hand', t.id, t.schedule, i.scheduled_for,
              count(m.task_id)) AS offender,
       count(m.task_id) <> 1 OR bool_or(m.planned_at IS DISTINCT FROM i.scheduled_for) AS broken
FROM tasks t
JOIN task_inputs i ON i.task_id = t.id
LEFT JOIN schedules s ON s.name = t.schedule
LEFT JOIN made m ON m.task_id = t.id AND (m.schedule = t.schedule OR m.schedule = ANY (s.formerly))
WHERE t.schedule IS NOT NULL
GROUP BY t.id, i.scheduled_for
