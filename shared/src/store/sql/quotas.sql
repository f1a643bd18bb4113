-- Quotas with what is left of them. A closing without an end is told as such, not as a time.
SELECT q.scope, q.name, q.requests_per_minute, q.burst, q.tokens_per_minute, q.max_in_flight, q.daily_tokens,
       q.daily_cost_micro, q.timezone, q.over_budget, q.file IS NOT NULL AS in_file, q.set_by, q.set_at, q.in_flight,
       CASE WHEN q.day = d.today THEN q.used_tokens ELSE 0 END AS used_tokens,
       CASE WHEN q.day = d.today THEN q.held_tokens ELSE 0 END AS held_tokens,
       CASE WHEN q.day = d.today THEN q.used_cost_micro ELSE 0 END AS used_cost_micro,
       CASE WHEN q.day = d.today THEN q.held_cost_micro ELSE 0 END AS held_cost_micro,
       d.today::text AS day, ((d.today + 1)::timestamp AT TIME ZONE q.timezone) AS resets_at,
       q.closed_at, nullif(q.closed_until, 'infinity') AS closed_until, q.closed_endpoint, q.closed_reason,
       CASE WHEN q.closed_until IS NULL THEN 'open'
            WHEN q.closed_until = 'infinity' THEN 'closed until opened'
            WHEN q.closed_until > d.now THEN 'closed'
            WHEN q.probe IS NOT NULL THEN 'probing' ELSE 'probe next' END AS state,
       (SELECT count(*) FROM llm_waits w WHERE w.scope = q.scope AND w.name = q.name) AS waiting
FROM llm_quotas q
CROSS JOIN LATERAL (SELECT belfry_now() AS now) n
CROSS JOIN LATERAL (SELECT n.now, greatest(q.day, (n.now AT TIME ZONE q.timezone)::date) AS today) d
ORDER BY q.scope, q.name
