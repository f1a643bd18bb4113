-- What was asked of models and what it cost, by model, schedule, type or day ($1), of calls that count
-- on the days $2 to $3: those in the journal, and the sums of those whose tasks are gone. Calls of
-- unknown outcome count with their estimates in columns of their own. A sum that no column holds is as
-- much as one holds.
WITH every AS (
    SELECT coalesce(c.day, (c.started_at AT TIME ZONE 'UTC')::date) AS day, c.model,
           coalesce(c.schedule, '') AS schedule, coalesce(c.task_type, '') AS task_type, 1 AS calls,
           (c.state = 'done')::int AS answered, (c.state = 'failed')::int AS failed,
           (c.state = 'unknown')::int AS unknown, (c.state = 'sent')::int AS in_flight,
           c.usage_estimated::int AS estimated, c.input_tokens, c.output_tokens, c.cached_tokens,
           c.reasoning_tokens, c.cost_micro, CASE WHEN c.state = 'unknown' THEN c.est_tokens END AS unknown_tokens,
           CASE WHEN c.state = 'unknown' THEN c.est_cost_micro END AS unknown_cost_micro
    FROM llm_calls c
    UNION ALL
    SELECT u.day, u.model, u.schedule, u.task_type, u.calls, u.answered, u.failed, u.unknown, 0, u.estimated,
           u.input_tokens, u.output_tokens, u.cached_tokens, u.reasoning_tokens, u.cost_micro, u.unknown_tokens,
           u.unknown_cost_micro
    FROM llm_usage u
)
SELECT CASE $1 WHEN 'model' THEN e.model
               WHEN 'schedule' THEN e.schedule
               WHEN 'type' THEN e.task_type
               ELSE e.day::text END AS key,
       coalesce(sum(e.calls), 0)::bigint AS calls,
       coalesce(sum(e.answered), 0)::bigint AS answered,
       coalesce(sum(e.failed), 0)::bigint AS failed,
       coalesce(sum(e.unknown), 0)::bigint AS unknown,
       coalesce(sum(e.in_flight), 0)::bigint AS in_flight,
       coalesce(sum(e.estimated), 0)::bigint AS estimated,
       least(9223372036854775807, coalesce(sum(e.input_tokens), 0))::bigint AS input_tokens,
       least(9223372036854775807, coalesce(sum(e.output_tokens), 0))::bigint AS output_tokens,
       least(9223372036854775807, coalesce(sum(e.cached_tokens), 0))::bigint AS cached_tokens,
       least(9223372036854775807, coalesce(sum(e.reasoning_tokens), 0))::bigint AS reasoning_tokens,
       least(9223372036854775807, coalesce(sum(e.cost_micro), 0))::bigint AS cost_micro,
       least(9223372036854775807, coalesce(sum(e.unknown_tokens), 0))::bigint AS unknown_tokens,
       least(9223372036854775807, coalesce(sum(e.unknown_cost_micro), 0))::bigint AS unknown_cost_micro
FROM every e
WHERE ($2::date IS NULL OR e.day >= $2) AND ($3::date IS NULL OR e.day <= $3)
GROUP BY 1 ORDER BY 1
