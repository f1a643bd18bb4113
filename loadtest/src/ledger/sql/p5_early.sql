-- A message that comes early starts nothing: no attempt began before the delay of the one before it
-- was over. The 50 ms forgive a step of the database's clock.
SELECT format('attempt %s of task %s began at %s, %s ms after the one before it, which asked for %s ms',
              b.run, b.task_id, b.started_at,
              round(extract(epoch FROM b.started_at - a.ended_at) * 1000), a.delay_ms) AS offender,
       b.started_at < a.ended_at + make_interval(secs => a.delay_ms / 1000.0) - interval '50 milliseconds' AS broken
FROM attempts a JOIN attempts b ON b.task_id = a.task_id AND b.run = a.run + 1
WHERE a.delay_ms IS NOT NULL AND a.ended_at IS NOT NULL
