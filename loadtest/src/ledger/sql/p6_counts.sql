-- Failures and crashes are the attempts that ended so since the last replay: snoozes, releases and
-- completions cost nothing, and no failure is forgotten. A failure of a task that somebody had
-- cancelled is counted and shown as its cancellation. Crashes are counted in a row: one of an attempt
-- that had kept a step is the first again.
SELECT format('task %s says %s failures and %s crashes, its attempts say %s and %s', t.id, t.failures,
              t.crashes, n.failed, n.crashed) AS offender,
       t.crashes <> n.crashed OR t.failures NOT BETWEEN n.failed AND n.failed + n.cancelled AS broken
FROM tasks t
LEFT JOIN LATERAL (
    SELECT max(l.run) AS run FROM dead_letters l WHERE l.task_id = t.id AND l.resolution = 'replayed'
) replayed ON true
LEFT JOIN LATERAL (
    SELECT max(a.run) AS run FROM attempts a
    WHERE a.task_id = t.id AND a.outcome IN ('lease_expired', 'deadline', 'abandoned')
      AND EXISTS (SELECT FROM steps s WHERE s.task_id = a.task_id AND s.token = a.token)
) got_on ON true
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE a.outcome IN ('retry', 'dead')) AS failed,
           count(*) FILTER (WHERE a.outcome = 'cancelled') AS cancelled,
           count(*) FILTER (WHERE a.outcome IN ('lease_expired', 'deadline', 'abandoned')
                                  AND a.run >= coalesce(got_on.run, 0)) AS crashed
    FROM attempts a WHERE a.task_id = t.id AND a.run > coalesce(replayed.run, 0)
) n
