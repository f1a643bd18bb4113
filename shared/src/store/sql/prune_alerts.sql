-- Deletes one chunk ($2) of alerts that tell of no letter, $1 seconds after they were accepted, and one
-- of episodes as long after their end. Those of letters go with their letters.
WITH cutoff AS MATERIALIZED (SELECT belfry_now() - make_interval(secs => $1::float8) AS at),
old_alerts AS MATERIALIZED (
    SELECT a.id FROM alerts a
    WHERE a.dead_letter_id IS NULL AND coalesce(a.sent_at, CASE WHEN a.kind = 'test' THEN a.created_at END)
              < (SELECT at FROM cutoff)
    ORDER BY a.id LIMIT $2
    FOR UPDATE SKIP LOCKED
),
old_episodes AS MATERIALIZED (
    SELECT e.id FROM episodes e WHERE e.ended_at < (SELECT at FROM cutoff)
    ORDER BY e.id LIMIT $2
    FOR UPDATE SKIP LOCKED
),
told AS (DELETE FROM alerts a USING old_alerts o WHERE a.id = o.id RETURNING a.id),
over AS (DELETE FROM episodes e USING old_episodes o WHERE e.id = o.id RETURNING e.id)
SELECT greatest((SELECT count(*) FROM told), (SELECT count(*) FROM over)) AS rows
