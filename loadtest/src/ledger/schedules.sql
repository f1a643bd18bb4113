-- Schedules and since when each is judged: what retention may have pruned is not asked for, nor what
-- lies before the last edit, when another line was in force. $1: seconds that finished tasks are kept.
SELECT name, cron, timezone, mark,
       greatest(applied_at, belfry_now() - make_interval(secs => $1::float8)) AS since
FROM schedules ORDER BY name
