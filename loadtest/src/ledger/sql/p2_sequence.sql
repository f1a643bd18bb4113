-- Attempts of one task follow each other: a claim never takes over what another still holds. The
-- 50 ms forgive a step of the database's clock.
SELECT format('attempt %s of task %s began at %s, before attempt %s ended', b.run, b.task_id, b.started_at, a.run) AS offender,
       a.ended_at IS NULL OR b.started_at < a.ended_at - interval '50 milliseconds' AS broken
FROM attempts a JOIN attempts b ON b.task_id = a.task_id AND b.run = a.run + 1
