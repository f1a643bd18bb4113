-- Schedules with their last tick; $2: removed ones too, with the name under which one goes on.
SELECT s.name, s.cron, s.timezone, s.task_type, s.mark, s.applied_at, s.paused_at, s.paused_by, s.spec, belfry_now() AS now,
       s.removed_at, h.name AS renamed_to,
       k.planned_at AS last_at, k.outcome AS last_outcome, k.task_id AS last_task,
       coalesce(k.other_payload, false) AS last_other_payload
FROM schedules s
LEFT JOIN LATERAL (
    SELECT planned_at, outcome, task_id, other_payload FROM ticks WHERE schedule = s.name
    ORDER BY planned_at DESC LIMIT 1
) k ON true
LEFT JOIN LATERAL (
    SELECT x.name FROM schedules x WHERE s.removed_at IS NOT NULL AND s.name = ANY (x.formerly)
    ORDER BY x.removed_at IS NULL DESC, x.applied_at DESC LIMIT 1
) h ON true
WHERE (s.removed_at IS NULL OR $2) AND ($1::text IS NULL OR s.name = $1)
ORDER BY s.name
