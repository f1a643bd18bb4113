-- A death is told: an alert was written with every letter of a task.
SELECT format('dead letter %s of task %s has no alert', l.id, l.task_id) AS offender,
       NOT EXISTS (SELECT FROM alerts a WHERE a.dead_letter_id = l.id) AS broken
FROM dead_letters l WHERE l.task_id IS NOT NULL
