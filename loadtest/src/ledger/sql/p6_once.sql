-- A task that must not rerun has one attempt between replays by hand. A snooze is not counted: the
-- handler said itself that nothing had been done. An attempt that was interrupted is.
SELECT format('task %s of %s, at most once, has the attempts %s', s.task_id, s.name,
              string_agg(s.run::text, ', ' ORDER BY s.run)) AS offender,
       count(*) FILTER (WHERE s.outcome IS DISTINCT FROM 'snooze') > 1 AS broken
FROM (SELECT a.task_id, a.run, a.outcome, i.name,
             (SELECT count(*) FROM dead_letters l
              WHERE l.task_id = a.task_id AND l.resolution = 'replayed' AND l.run < a.run) AS replays
      FROM attempts a JOIN task_inputs i ON i.task_id = a.task_id
      WHERE i.at_most_once) s
GROUP BY s.task_id, s.name, s.replays
