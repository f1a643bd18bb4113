-- Deletes one chunk ($2) of reports that were kept $1 seconds ago.
WITH old AS MATERIALIZED (
    SELECT a.id FROM artifacts a
    WHERE a.created_at < (SELECT belfry_now() - make_interval(secs => $1::float8))
    ORDER BY a.id LIMIT $2
    FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM artifacts a USING old o WHERE a.id = o.id RETURNING a.id)
SELECT count(*) AS rows FROM gone
