-- Pauses ($2 names who) or resumes ($2 is NULL), and answers with the schedule as it is now and who had
-- paused it before. Ticks during a pause are recorded as paused, whenever they are decided: one that is
-- over is kept until nothing in it is left to decide.
WITH was AS (
    SELECT name, paused_by FROM schedules WHERE name = $1 AND removed_at IS NULL
    FOR UPDATE
),
done AS (
    UPDATE schedules s
    SET pauses = s.pauses * tstzmultirange(tstzrange(s.mark, NULL, '()'))
                 + CASE WHEN $2::text IS NULL AND s.paused_at < belfry_now()
                        THEN tstzmultirange(tstzrange(s.paused_at, belfry_now())) ELSE '{}' END,
        paused_at = CASE WHEN $2::text IS NULL THEN NULL ELSE coalesce(s.paused_at, belfry_now()) END,
        paused_by = CASE WHEN $2::text IS NULL THEN NULL ELSE coalesce(s.paused_by, $2) END
    FROM was w WHERE s.name = w.name
    RETURNING s.*, w.paused_by AS was_paused_by
)
SELECT d.name, d.cron, d.timezone, d.task_type, d.mark, d.applied_at, d.paused_at, d.paused_by, d.spec, belfry_now() AS now,
       d.removed_at, NULL::text AS renamed_to, NULL::timestamptz AS heir_removed_at, d.was_paused_by,
       k.planned_at AS last_at, k.outcome AS last_outcome, k.task_id AS last_task,
       coalesce(k.other_payload, false) AS last_other_payload
FROM done d
LEFT JOIN LATERAL (
    SELECT planned_at, outcome, task_id, other_payload FROM ticks WHERE schedule = d.name
    ORDER BY planned_at DESC LIMIT 1
) k ON true
