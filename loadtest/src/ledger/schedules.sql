-- Schedules and since when each is judged: what retention may have pruned is not asked for, nor what
-- lies before the last edit, when another line was in force, or outside start_at and end_at. $1: seconds
-- that finished tasks are kept.
SELECT name, cron, timezone,
       least(mark, (spec->>'end_at')::timestamptz) AS mark,
       -- An instant of start_at itself is planned, and is looked for after this.
       (spec->>'start_at')::timestamptz - interval '1 microsecond' AS begin,
       greatest(applied_at, belfry_now() - make_interval(secs => $1::float8)) AS since,
       -- What is due after its mark, where it is in force.
       mark AS decided, (spec->>'end_at')::timestamptz AS "end", removed_at IS NULL AS in_force, belfry_now() AS now
FROM schedules ORDER BY name
