-- Deletes one chunk ($2) of letters that were closed $1 seconds ago, with their alerts. A letter stays
-- as long as its task, whose counts it explains, and as long as its copy may be in the dead queue.
WITH old AS MATERIALIZED (
    SELECT l.id FROM dead_letters l
    WHERE l.resolved_at < (SELECT belfry_now() - make_interval(secs => $1::float8))
      AND (l.published_at IS NULL OR l.removed_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = l.task_id)
    ORDER BY l.resolved_at LIMIT $2
    FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM dead_letters l USING old o WHERE l.id = o.id RETURNING l.id)
SELECT count(*) AS rows FROM gone
