-- The newest tick of each of these schedules of which one knows how it went, and whether the schedule is to
-- tick at all. One whose task may still be too late for its deadline is passed over.
SELECT n.name, s.name IS NOT NULL AND s.paused_at IS NULL
           AND NOT coalesce((s.spec ->> 'paused')::boolean, false) AS ticks,
       k.planned_at, k.outcome
FROM unnest($1::text[]) AS n (name)
LEFT JOIN schedules s ON s.name = n.name AND s.removed_at IS NULL
LEFT JOIN LATERAL (
    SELECT l.planned_at,
           CASE WHEN l.not_started_at IS NULL THEN l.outcome ELSE 'not_started' END AS outcome
    FROM ticks l LEFT JOIN tasks t ON t.id = l.task_id
    WHERE l.schedule = n.name
      AND (t.start_by IS NULL OR t.run > 0 OR t.finished_at IS NOT NULL)
    ORDER BY l.planned_at DESC LIMIT 1
) k ON true
