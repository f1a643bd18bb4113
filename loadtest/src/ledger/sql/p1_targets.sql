-- A tick that made a task points to one that exists, or whose key outlives it, and so does a run by hand:
-- neither is the promise of a task that was not written. $1: seconds that keys are kept. What a
-- deduplicated tick found was older than the tick, and may have gone with its key before.
SELECT format('%s at %s points to task %s, which never was', k.schedule, k.planned_at, k.task_id) AS offender,
       t.id IS NULL AND x.task_id IS NULL AND k.outcome = 'enqueued' AS broken
FROM (SELECT schedule, planned_at, task_id, decided_at, outcome FROM ticks WHERE task_id IS NOT NULL
      UNION ALL
      SELECT schedule, scheduled_for, task_id, asked_at, 'enqueued' FROM by_hand) k
LEFT JOIN tasks t ON t.id = k.task_id
LEFT JOIN execution_keys x ON x.task_id = k.task_id
WHERE k.decided_at > belfry_now() - make_interval(secs => $1::float8)
