-- Steps and model calls were written under the claim of the attempt they name: a late worker does
-- not slip its work into its successor's history.
SELECT format('%s of task %s was written in run %s by another claim', w.what, w.task_id, w.run) AS offender,
       a.token IS DISTINCT FROM w.token AS broken
FROM (SELECT 'step ' || name AS what, task_id, run, token FROM steps
      UNION ALL
      SELECT format('call %s of step %s', call_no, step), task_id, run, token FROM llm_calls) w
LEFT JOIN attempts a ON a.task_id = w.task_id AND a.run = w.run
