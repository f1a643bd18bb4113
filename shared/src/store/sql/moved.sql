-- A message that the broker itself has moved to the dead queue, kept for eyes: once, though a walk that
-- was cut short meets it again. Its copy is there, so that it counts as published. One whose letter was
-- closed and not yet walked for (a copy that was made without its number) is that letter's copy.
WITH known AS MATERIALIZED (
    SELECT id, resolved_at IS NOT NULL AS closed FROM dead_letters
    WHERE task_id IS NULL AND removed_at IS NULL AND body = $3
    ORDER BY resolved_at IS NOT NULL, id LIMIT 1
),
fresh AS (
    INSERT INTO dead_letters (task_id, run, error_class, error_message, body, created_at, published_at)
    SELECT NULL, NULL, $1, $2, $3, belfry_now(), belfry_now() WHERE NOT EXISTS (SELECT FROM known)
    RETURNING id
)
SELECT id, closed, false AS fresh FROM known UNION ALL SELECT id, false, true FROM fresh
