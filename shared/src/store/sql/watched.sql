-- The schedules that are to tick: a page of them by name after $1, or those that are named ($3). What
-- is paused is not to tick.
SELECT name, cron, timezone, mark, spec
FROM schedules
WHERE removed_at IS NULL AND paused_at IS NULL AND NOT coalesce((spec ->> 'paused')::boolean, false)
  AND ($1::text IS NULL OR name > $1) AND ($3::text[] IS NULL OR name = ANY ($3))
ORDER BY name LIMIT $2
