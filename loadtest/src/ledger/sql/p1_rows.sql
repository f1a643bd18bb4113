-- The other direction: a tick row stands for instants that its schedule plans, and for as many as it
-- says. A row too many is a task that nobody asked for.
WITH planned AS (
    SELECT * FROM unnest($1::text[], $2::timestamptz[]) AS p (schedule, planned_at)
),
looked_at AS (
    SELECT * FROM unnest($3::text[], $4::timestamptz[]) AS w (schedule, since)
),
spans AS MATERIALIZED (
    SELECT k.schedule, k.planned_at, count(p.planned_at) AS planned
    FROM ticks k
    JOIN looked_at w ON w.schedule = k.schedule AND w.since < k.first_at
    LEFT JOIN planned p ON p.schedule = k.schedule AND p.planned_at BETWEEN k.first_at AND k.planned_at
    WHERE k.first_at IS NOT NULL
    GROUP BY k.schedule, k.planned_at
)
SELECT format('%s at %s says %s and the schedule plans %s', k.schedule, k.planned_at, k.count,
              coalesce(s.planned, (p.schedule IS NOT NULL)::int)) AS offender,
       p.schedule IS NULL OR coalesce(s.planned <> k.count, false) OR (k.first_at IS NULL AND k.count <> 1) AS broken
FROM looked_at w
JOIN ticks k ON k.schedule = w.schedule AND k.planned_at > w.since
LEFT JOIN planned p ON p.schedule = k.schedule AND p.planned_at = k.planned_at
LEFT JOIN spans s ON s.schedule = k.schedule AND s.planned_at = k.planned_at
