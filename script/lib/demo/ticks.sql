-- What became of the planned instants.
SELECT s.name AS schedule, s.cron,
       coalesce(sum(k.count), 0) AS ticks,
       coalesce(sum(k.count) FILTER (WHERE k.outcome = 'enqueued'), 0) AS enqueued,
       coalesce(sum(k.count) FILTER (WHERE k.outcome = 'skipped_overlap'), 0) AS skipped,
       coalesce(sum(k.count) FILTER (WHERE k.outcome = 'missed'), 0) AS missed,
       count(DISTINCT k.epoch) AS leaders,
       to_char(max(k.planned_at) AT TIME ZONE 'UTC', 'HH24:MI:SS') AS "last (UTC)"
FROM schedules s LEFT JOIN ticks k ON k.schedule = s.name
WHERE s.removed_at IS NULL
GROUP BY s.name, s.cron ORDER BY ticks DESC, s.name;
