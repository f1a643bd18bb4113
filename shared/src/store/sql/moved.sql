-- A message that the broker itself has moved to the dead queue, kept for eyes: once, though a walk that
-- was cut short meets it again. Its copy is there, so that it counts as published.
WITH known AS MATERIALIZED (
    SELECT id FROM dead_letters
    WHERE task_id IS NULL AND resolved_at IS NULL AND body = $3 ORDER BY id LIMIT 1
),
fresh AS (
    INSERT INTO dead_letters (task_id, run, error_class, error_message, body, created_at, published_at)
    SELECT NULL, NULL, $1, $2, $3, belfry_now(), belfry_now() WHERE NOT EXISTS (SELECT FROM known)
    RETURNING id
)
SELECT id, false AS fresh FROM known UNION ALL SELECT id, true FROM fresh
