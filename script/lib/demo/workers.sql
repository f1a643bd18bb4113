-- Attempts by process and type.
SELECT p.name AS process, w.label,
       count(*) FILTER (WHERE i.task_type = 'http_call') AS http_call,
       count(*) FILTER (WHERE i.task_type = 'db_query') AS db_query,
       count(*) FILTER (WHERE i.task_type = 'model_invoke') AS model_invoke,
       count(*) FILTER (WHERE i.task_type = 'report_generation') AS report_generation,
       count(*) FILTER (WHERE a.outcome = 'lease_expired') AS lost,
       CASE WHEN w.label = :'victim' THEN 'killed' ELSE '' END AS fate
FROM workers w
JOIN (VALUES :processes) AS p (pid, name) ON p.pid::text = split_part(w.label, '#', 2)
LEFT JOIN attempts a ON a.worker = w.label
LEFT JOIN task_inputs i ON i.task_id = a.task_id
WHERE w.role = 'worker'
GROUP BY 1, 2 ORDER BY 1;
