-- Deletes one chunk ($2) of incarnations that ended $1 seconds ago. None that a running task names: its
-- row is how the rescue finds it.
WITH old AS MATERIALIZED (
    SELECT w.id FROM workers w
    WHERE w.fenced_at < (SELECT belfry_now() - make_interval(secs => $1::float8))
      AND NOT EXISTS (SELECT FROM tasks t
                      WHERE t.finished_at IS NULL AND t.state = 'running' AND t.incarnation = w.id)
    ORDER BY w.id LIMIT $2
    FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM workers w USING old o WHERE w.id = o.id RETURNING w.id)
SELECT count(*) AS rows FROM gone
