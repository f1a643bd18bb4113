-- A completed task has its one result, and nothing else has one: a result without its completion
-- would be the work of somebody who no longer held the task.
SELECT format('task %s is %s and has %s result', coalesce(t.id, r.task_id), coalesce(t.state, 'gone'),
              CASE WHEN r.task_id IS NULL THEN 'no' ELSE 'a' END) AS offender,
       (t.state = 'completed') IS DISTINCT FROM (r.task_id IS NOT NULL) AS broken
FROM tasks t FULL JOIN task_results r ON r.task_id = t.id
WHERE t.state = 'completed' OR r.task_id IS NOT NULL
