-- Lets a schedule ($2) go on for one that is removed ($1): it stays paused if somebody paused it, its
-- unfinished tasks still count for overlap, and its execution keys still hold.
WITH old AS (
    UPDATE schedules SET renamed_to = $2 WHERE name = $1
    RETURNING name, paused_at, paused_by, pauses, formerly
),
moved AS (
    UPDATE tasks t SET schedule = $2 WHERE t.schedule = $1 AND t.finished_at IS NULL
)
UPDATE schedules s
SET paused_at = o.paused_at, paused_by = o.paused_by, pauses = o.pauses,
    formerly = array_prepend(o.name, o.formerly)
FROM old o WHERE s.name = $2
