-- What the last ticks of schedules came to since the last edit ($2 ticks each), and where the last
-- task of theirs stands. $1 names one schedule.
SELECT s.name, k.runs, k.enqueued, k.deduplicated, k.skipped_overlap, k.paused, k.missed,
       k.not_started, k.late, k.task_id, k.task_at, t.state, a.error_class, a.error_message
FROM schedules s
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(l.planned_at ORDER BY l.planned_at)
                        FILTER (WHERE l.outcome = 'enqueued' AND l.not_started_at IS NULL), '{}') AS runs,
           coalesce(sum(l.count) FILTER (WHERE l.outcome = 'enqueued' AND l.not_started_at IS NULL), 0)::bigint AS enqueued,
           coalesce(sum(l.count) FILTER (WHERE l.outcome = 'deduplicated'), 0)::bigint AS deduplicated,
           coalesce(sum(l.count) FILTER (WHERE l.outcome = 'skipped_overlap'), 0)::bigint AS skipped_overlap,
           coalesce(sum(l.count) FILTER (WHERE l.outcome = 'paused'), 0)::bigint AS paused,
           coalesce(sum(l.count) FILTER (WHERE l.outcome = 'missed'), 0)::bigint AS missed,
           count(l.not_started_at) AS not_started,
           (array_agg(l.not_started_at ORDER BY l.planned_at DESC) FILTER (WHERE l.task_id IS NOT NULL))[1] IS NOT NULL AS late,
           (array_agg(l.task_id ORDER BY l.planned_at DESC) FILTER (WHERE l.task_id IS NOT NULL))[1] AS task_id,
           (array_agg(l.planned_at ORDER BY l.planned_at DESC) FILTER (WHERE l.task_id IS NOT NULL))[1] AS task_at
    FROM (SELECT planned_at, outcome, count, task_id, not_started_at FROM ticks
          WHERE schedule = s.name AND planned_at > s.applied_at
          ORDER BY planned_at DESC LIMIT $2) l
) k
LEFT JOIN tasks t ON t.id = k.task_id
LEFT JOIN attempts a ON a.task_id = t.id AND a.run = t.run
WHERE s.removed_at IS NULL AND ($1::text IS NULL OR s.name = $1)
