-- Pauses ($2 names who) or resumes ($2 is NULL). Ticks during a pause are recorded as paused,
-- whenever they are decided.
UPDATE schedules
SET last_pause = CASE WHEN $2::text IS NULL AND paused_at < belfry_now()
                      THEN tstzrange(paused_at, belfry_now()) ELSE last_pause END,
    paused_at = CASE WHEN $2::text IS NULL THEN NULL ELSE coalesce(paused_at, belfry_now()) END,
    paused_by = CASE WHEN $2::text IS NULL THEN NULL ELSE coalesce(paused_by, $2) END
WHERE name = $1 AND removed_at IS NULL
RETURNING name
