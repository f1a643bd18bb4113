-- What a session has used since its last replay, a person's word that it may use as much once more:
-- its own steps (those inside a tool's belong to the tool's), its model calls with estimates where
-- nobody knows, and the time since its first attempt.
WITH since AS (
    SELECT coalesce(max(resolved_at), '-infinity') AS at
    FROM dead_letters WHERE task_id = $1 AND resolution = 'replayed'
)
SELECT (SELECT count(*)::int FROM steps s
        WHERE s.task_id = $1 AND s.created_at > since.at AND s.name NOT LIKE '%/%') AS steps,
       c.tokens, c.cost_micro,
       (SELECT coalesce((extract(epoch FROM belfry_now() - min(a.started_at)) * 1000)::bigint, 0)
        FROM attempts a WHERE a.task_id = $1 AND a.started_at > since.at) AS elapsed_ms
FROM since
CROSS JOIN LATERAL (
    -- At most what a column holds.
    SELECT least(9223372036854775807, coalesce(sum(CASE WHEN l.state IN ('sent', 'unknown') THEN l.est_tokens
               ELSE coalesce(l.input_tokens, 0)::numeric + coalesce(l.output_tokens, 0) END), 0))::bigint AS tokens,
           least(9223372036854775807, coalesce(sum(CASE WHEN l.state IN ('sent', 'unknown') THEN l.est_cost_micro
               ELSE l.cost_micro END), 0))::bigint AS cost_micro
    FROM llm_calls l WHERE l.task_id = $1 AND l.started_at > since.at
) c
