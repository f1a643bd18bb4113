-- Dead letters are those that were asked for, and no others.
SELECT format('letter %s of task %s: %s, %s', l.id, l.task_id, l.error_class, l.error_message) AS offender,
       told.id IS NULL AS broken
FROM dead_letters l LEFT JOIN unnest($1::uuid[]) AS told (id) ON told.id = l.task_id
WHERE l.task_id IS NOT NULL
