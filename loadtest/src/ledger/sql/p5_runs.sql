-- Only a claim runs a task: its run is the number of its attempts, which are numbered without a
-- hole. A message, however often it comes, adds neither.
SELECT format('task %s is at run %s and has %s attempts, from %s to %s', coalesce(t.id, a.task_id),
              coalesce(t.run::text, 'none'), coalesce(a.attempts, 0), a.first, a.last) AS offender,
       t.id IS NULL OR t.run <> coalesce(a.attempts, 0)
           OR coalesce(a.first <> 1 OR a.last <> t.run, false) AS broken
FROM tasks t
FULL JOIN (SELECT task_id, count(*) AS attempts, min(run) AS first, max(run) AS last
           FROM attempts GROUP BY task_id) a ON a.task_id = t.id
