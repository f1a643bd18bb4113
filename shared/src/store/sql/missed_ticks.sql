-- Schedules with missed instants that no episode has heard of, and how many. $1: how far back, in ms.
SELECT k.schedule, min(coalesce(k.first_at, k.planned_at)) AS first_at, max(k.planned_at) AS last_at,
       sum(k.count)::bigint AS count, max(k.decided_at) AS decided_at
FROM ticks k
JOIN schedules s ON s.name = k.schedule AND s.removed_at IS NULL
WHERE k.outcome = 'missed' AND k.decided_at > belfry_now() - make_interval(secs => $1::bigint / 1000.0)
  AND NOT EXISTS (SELECT FROM episodes e
                  WHERE e.kind = 'missed' AND e.subject = k.schedule AND e.until >= k.decided_at)
GROUP BY k.schedule ORDER BY k.schedule LIMIT $2
