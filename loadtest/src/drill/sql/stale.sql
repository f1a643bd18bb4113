-- No late owner wrote: every row is of the attempt that completed its task.
SELECT format('run %s of task %s left a row, and run %s completed it', e.run, e.task_id, a.run) AS offender,
       a.token IS DISTINCT FROM e.token OR a.run IS DISTINCT FROM e.run AS broken
FROM drill_effects e LEFT JOIN attempts a ON a.task_id = e.task_id AND a.outcome = 'completed'
