-- A request has one task, however often it was sent, and the task is done.
SELECT format('request %s has %s tasks: %s', told.key, count(t.id), string_agg(t.state, ', ')) AS offender,
       count(t.id) <> 1 OR count(t.id) FILTER (WHERE t.state = 'completed') <> 1 AS broken
FROM unnest($1::text[]) AS told (key)
LEFT JOIN task_inputs i ON i.name = 'probe' AND i.execution_key = told.key
LEFT JOIN tasks t ON t.id = i.task_id
GROUP BY told.key
