-- Every planned instant, recomputed from the cron line, is in exactly one tick row, alone or inside
-- a span of missed ones: none is forgotten in an outage, none is decided twice by two producers.
WITH planned AS (
    SELECT * FROM unnest($1::text[], $2::timestamptz[]) AS p (schedule, planned_at)
),
spans AS MATERIALIZED (
    SELECT schedule, first_at, planned_at FROM ticks WHERE first_at < planned_at
)
SELECT format('%s at %s is in %s tick rows', p.schedule, p.planned_at, n.rows) AS offender,
       n.rows <> 1 AS broken
FROM planned p
LEFT JOIN ticks k ON k.schedule = p.schedule AND k.planned_at = p.planned_at
CROSS JOIN LATERAL (
    SELECT (k.schedule IS NOT NULL)::int + count(*) AS rows FROM spans s
    WHERE s.schedule = p.schedule AND s.first_at <= p.planned_at AND p.planned_at < s.planned_at
) n
