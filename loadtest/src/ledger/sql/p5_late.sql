-- A message that comes late starts nothing either: no task began after its deadline. The 50 ms forgive
-- a step of the database's clock.
SELECT format('task %s began at %s and had to by %s', t.id, a.started_at, t.start_by) AS offender,
       a.started_at > t.start_by + interval '50 milliseconds' AS broken
FROM tasks t JOIN attempts a ON a.task_id = t.id AND a.run = 1
WHERE t.start_by IS NOT NULL
