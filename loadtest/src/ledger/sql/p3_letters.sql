-- A dead task is on somebody's desk: one open letter of its last run, or one that a person has
-- discarded. An open letter means a dead task.
WITH letters AS (
    SELECT task_id, count(*) FILTER (WHERE resolved_at IS NULL) AS open, max(run) AS run,
           (array_agg(resolution ORDER BY run DESC))[1] AS last
    FROM dead_letters WHERE task_id IS NOT NULL GROUP BY task_id
)
SELECT format('task %s is %s at run %s with %s open letters', coalesce(t.id, l.task_id),
              coalesce(t.state, 'gone'), t.run, coalesce(l.open, 0)) AS offender,
       CASE WHEN t.state = 'dead' THEN
                (l.run = t.run AND (l.open = 1 AND l.last IS NULL OR l.open = 0 AND l.last = 'discarded'))
                    IS NOT TRUE
            ELSE coalesce(l.open, 0) > 0 END AS broken
FROM tasks t FULL JOIN letters l ON l.task_id = t.id
WHERE t.state = 'dead' OR l.task_id IS NOT NULL
