-- What was asked of models and what it cost, by model, schedule, type or day ($1), of calls that count
-- on the days $2 to $3. Calls of unknown outcome count with their estimates in columns of their own.
SELECT CASE $1 WHEN 'model' THEN c.model
               WHEN 'schedule' THEN coalesce(c.schedule, '')
               WHEN 'type' THEN coalesce(c.task_type, '')
               ELSE d.day::text END AS key,
       count(*) AS calls,
       count(*) FILTER (WHERE c.state = 'done') AS answered,
       count(*) FILTER (WHERE c.state = 'failed') AS failed,
       count(*) FILTER (WHERE c.state = 'unknown') AS unknown,
       count(*) FILTER (WHERE c.state = 'sent') AS in_flight,
       count(*) FILTER (WHERE c.usage_estimated) AS estimated,
       coalesce(sum(c.input_tokens), 0)::bigint AS input_tokens,
       coalesce(sum(c.output_tokens), 0)::bigint AS output_tokens,
       coalesce(sum(c.cached_tokens), 0)::bigint AS cached_tokens,
       coalesce(sum(c.reasoning_tokens), 0)::bigint AS reasoning_tokens,
       coalesce(sum(c.cost_micro), 0)::bigint AS cost_micro,
       coalesce(sum(c.est_tokens) FILTER (WHERE c.state = 'unknown'), 0)::bigint AS unknown_tokens,
       coalesce(sum(c.est_cost_micro) FILTER (WHERE c.state = 'unknown'), 0)::bigint AS unknown_cost_micro
FROM llm_calls c
CROSS JOIN LATERAL (SELECT coalesce(c.day, (c.started_at AT TIME ZONE 'UTC')::date) AS day) d
WHERE ($2::date IS NULL OR d.day >= $2) AND ($3::date IS NULL OR d.day <= $3)
GROUP BY 1 ORDER BY 1
