-- What a quota counts is what the journal says: calls under way, their estimates, and what those that
-- have ended used on the day that is counted. A counter that drifts lets in too many, or nobody. Where
-- tasks are kept for less than that ($1, seconds), what was used may be more than is still written.
SELECT format('quota %s %s counts %s in flight, %s tokens and %s held, %s tokens and %s used; its calls say %s, %s and %s, %s and %s',
              q.scope, q.name, q.in_flight, q.held_tokens, q.held_cost_micro, q.used_tokens, q.used_cost_micro,
              j.in_flight, j.held_tokens, j.held_cost, j.used_tokens, j.used_cost) AS offender,
       (q.in_flight, q.held_tokens, q.held_cost_micro) <> (j.in_flight, j.held_tokens, j.held_cost)
           OR q.used_tokens < j.used_tokens OR q.used_cost_micro < j.used_cost
           OR $1::float8 > 2 * 86400
              AND (q.used_tokens > j.used_tokens OR q.used_cost_micro > j.used_cost) AS broken
FROM llm_quotas q
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE c.state = 'sent') AS in_flight,
           coalesce(sum(c.est_tokens) FILTER (WHERE c.state = 'sent' AND c.on_day = q.day), 0) AS held_tokens,
           coalesce(sum(c.est_cost_micro) FILTER (WHERE c.state = 'sent' AND c.on_day = q.day), 0) AS held_cost,
           coalesce(sum(CASE c.state WHEN 'sent' THEN 0 WHEN 'unknown' THEN c.est_tokens
                        ELSE coalesce(c.input_tokens, 0)::numeric + coalesce(c.output_tokens, 0) END)
                    FILTER (WHERE c.on_day = q.day), 0) AS used_tokens,
           coalesce(sum(CASE c.state WHEN 'sent' THEN 0 WHEN 'unknown' THEN coalesce(c.est_cost_micro, 0)
                        ELSE coalesce(c.cost_micro, 0) END)
                    FILTER (WHERE c.on_day = q.day), 0) AS used_cost
    FROM (SELECT m.*, m.day AS on_day FROM llm_calls m
          WHERE q.scope = 'model' AND m.model = q.name AND m.day IS NOT NULL
          UNION ALL
          SELECT s.*, s.budget_day FROM llm_calls s
          WHERE q.scope = 'schedule' AND s.schedule = q.name AND s.budget_day IS NOT NULL) c
) j
