-- The newest ticks of a schedule, or of all.
SELECT schedule, planned_at, outcome, task_id, decided_at, first_at, count, not_started_at,
    other_payload
FROM ticks WHERE $1::text IS NULL OR schedule = $1
ORDER BY planned_at DESC LIMIT $2
