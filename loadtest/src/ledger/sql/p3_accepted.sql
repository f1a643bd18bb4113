-- What was accepted is there: state and input of every task, and a task for every key that is too
-- young for its task to have been pruned. $1: seconds that finished tasks are kept.
SELECT format('task %s has %s', coalesce(k.task_id, i.task_id, t.id),
              CASE WHEN t.id IS NULL THEN 'no state' ELSE 'no input' END) AS offender,
       (t.id IS NULL OR i.task_id IS NULL)
           AND (t.id IS NOT NULL OR i.task_id IS NOT NULL
                OR k.created_at > belfry_now() - make_interval(secs => $1::float8)) AS broken
FROM execution_keys k
FULL JOIN task_inputs i ON i.task_id = k.task_id
FULL JOIN tasks t ON t.id = coalesce(i.task_id, k.task_id)
