-- Schedules with instants that were missed, or whose task did not start by its deadline, and of which no
-- episode has heard, and how many. $1: how far back, in ms. Each kind has a partial index on its time.
WITH since AS MATERIALIZED (SELECT belfry_now() - make_interval(secs => $1::bigint / 1000.0) AS at),
evidence AS (
    SELECT schedule, coalesce(first_at, planned_at) AS first_at, planned_at, count, 0 AS not_started,
           decided_at AS seen_at
    FROM ticks WHERE outcome = 'missed' AND decided_at > (SELECT at FROM since)
    UNION ALL
    SELECT schedule, planned_at, planned_at, 1, 1, not_started_at
    FROM ticks WHERE not_started_at > (SELECT at FROM since)
)
SELECT k.schedule, min(k.first_at) AS first_at, max(k.planned_at) AS last_at,
       sum(k.count)::bigint AS count, sum(k.not_started)::bigint AS not_started,
       max(k.planned_at) FILTER (WHERE k.not_started > 0) AS last_not_started_at,
       max(k.seen_at) AS seen_at, max((s.spec ->> 'deadline_ms')::bigint) AS deadline_ms
FROM evidence k
CROSS JOIN LATERAL (
    -- LIMIT: looked up for each, where a plan of empty tables would look through all schedules.
    SELECT spec FROM schedules WHERE name = k.schedule AND removed_at IS NULL LIMIT 1
) s
WHERE NOT EXISTS (SELECT FROM episodes e
                  WHERE e.kind = 'missed' AND e.subject = k.schedule AND e.until >= k.seen_at)
GROUP BY k.schedule ORDER BY k.schedule LIMIT $2
