-- A task holds its key alone. Only a finished task that is not dead may have lost it, and only after
-- the key's time. $1: seconds that keys are kept.
SELECT format('task %s (%s, key %s): the key belongs to %s', t.id, i.name, i.execution_key,
              coalesce(k.task_id::text, 'nobody')) AS offender,
       k.task_id IS DISTINCT FROM t.id
           AND (t.finished_at IS NULL OR t.state = 'dead'
                OR i.created_at > belfry_now() - make_interval(secs => $1::float8)) AS broken
FROM tasks t
JOIN task_inputs i ON i.task_id = t.id
LEFT JOIN execution_keys k ON k.name = i.name AND k.execution_key = i.execution_key
