-- The newest tick of each of these schedules, and whether the schedule is to tick at all.
SELECT n.name, s.name IS NOT NULL AND s.paused_at IS NULL
           AND NOT coalesce((s.spec ->> 'paused')::boolean, false) AS ticks,
       k.planned_at, k.outcome
FROM unnest($1::text[]) AS n (name)
LEFT JOIN schedules s ON s.name = n.name AND s.removed_at IS NULL
LEFT JOIN LATERAL (
    SELECT planned_at, outcome FROM ticks WHERE schedule = n.name ORDER BY planned_at DESC LIMIT 1
) k ON true
