-- Messages that pointed to no task, kept for eyes. Never a violation: they moved nothing.
SELECT format('dead letter %s: %s', l.id, l.error_message) AS offender, false AS broken
FROM dead_letters l WHERE l.task_id IS NULL
