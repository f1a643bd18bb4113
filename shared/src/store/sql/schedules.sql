-- Schedules with their last tick; $2: removed ones too, with the one that goes on for each that was
-- renamed, the last where that one was renamed again, and since when that one is gone itself.
WITH RECURSIVE heirs AS (
    SELECT s.name, s.renamed_to AS heir FROM schedules s
    WHERE $2 AND s.renamed_to IS NOT NULL AND ($1::text IS NULL OR s.name = $1)
    UNION
    SELECT h.name, x.renamed_to FROM heirs h JOIN schedules x ON x.name = h.heir
    WHERE x.renamed_to IS NOT NULL
)
SELECT s.name, s.cron, s.timezone, s.task_type, s.mark, s.applied_at, s.paused_at, s.paused_by, s.spec, belfry_now() AS now,
       s.removed_at, h.heir AS renamed_to, h.removed_at AS heir_removed_at,
       k.planned_at AS last_at, k.outcome AS last_outcome, k.task_id AS last_task,
       coalesce(k.other_payload, false) AS last_other_payload
FROM schedules s
LEFT JOIN LATERAL (
    SELECT planned_at, outcome, task_id, other_payload FROM ticks WHERE schedule = s.name
    ORDER BY planned_at DESC LIMIT 1
) k ON true
LEFT JOIN (
    SELECT i.name, i.heir, x.removed_at FROM heirs i JOIN schedules x ON x.name = i.heir
    WHERE x.renamed_to IS NULL
) h ON h.name = s.name
WHERE (s.removed_at IS NULL OR $2) AND ($1::text IS NULL OR s.name = $1)
ORDER BY s.name
