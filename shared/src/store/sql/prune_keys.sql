-- Deletes one chunk ($2) of keys whose time is over by their own expiry and by today's configuration
-- ($1: seconds), but none whose task lives or is dead: it may still run under it.
WITH old AS MATERIALIZED (
    SELECT k.name, k.execution_key FROM execution_keys k
    WHERE k.expires_at < (SELECT belfry_now())
      AND k.created_at < (SELECT belfry_now() - make_interval(secs => $1::float8))
      AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = k.task_id AND (t.finished_at IS NULL OR t.state = 'dead'))
    ORDER BY k.expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM execution_keys k USING old o
    WHERE k.name = o.name AND k.execution_key = o.execution_key
    RETURNING k.name
)
SELECT count(*) AS rows FROM gone
