-- How often each of these tasks was run, and what did not complete it.
SELECT told.id, count(a.run) AS runs, count(a.run) FILTER (WHERE a.outcome = 'completed') AS completed
FROM unnest($1::uuid[]) AS told (id) LEFT JOIN attempts a ON a.task_id = told.id
GROUP BY told.id
