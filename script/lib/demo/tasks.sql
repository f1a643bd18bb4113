-- Tasks by name, with their attempts and what they asked of the model.
SELECT coalesce(t.schedule, CASE WHEN t.execution_key LIKE 'quick-%' THEN 'quick tasks'
                                 WHEN t.execution_key LIKE 'slow-%' THEN 'slow tasks'
                                 WHEN t.execution_key = 'flaky' THEN 'fails twice'
                                 ELSE 'fails for good' END) AS task,
       t.task_type AS type,
       count(*) AS tasks,
       count(*) FILTER (WHERE t.state = 'completed') AS completed,
       sum(t.run) AS attempts,
       coalesce(sum(a.failed), 0) AS failed,
       coalesce(sum(a.lost), 0) AS recovered,
       coalesce(sum(c.calls), 0) AS "model calls",
       coalesce(sum(c.tokens), 0) AS tokens
FROM task_overview t
LEFT JOIN (SELECT task_id, count(*) FILTER (WHERE outcome IN ('retry', 'dead')) AS failed,
                  count(*) FILTER (WHERE outcome = 'lease_expired') AS lost
           FROM attempts GROUP BY task_id) a ON a.task_id = t.id
LEFT JOIN (SELECT task_id, count(*) AS calls, sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) AS tokens
           FROM llm_calls GROUP BY task_id) c ON c.task_id = t.id
GROUP BY 1, 2 ORDER BY min(t.schedule), 1;
