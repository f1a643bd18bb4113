-- What is written in the completing transaction is there once for each completed task, and never for
-- another.
SELECT format('task %s is %s and left %s rows', told.id, coalesce(t.state, 'gone'), count(e.task_id)) AS offender,
       count(e.task_id) <> CASE t.state WHEN 'completed' THEN 1 ELSE 0 END AS broken
FROM unnest($1::uuid[]) AS told (id)
LEFT JOIN tasks t ON t.id = told.id
LEFT JOIN drill_effects e ON e.task_id = told.id
GROUP BY told.id, t.state
