-- Deletes one chunk ($2) of ticks that were planned and decided $1 seconds ago. A tick stays as long as
-- its task, which it explains, and the newest of each schedule stays for eyes.
WITH cutoff AS MATERIALIZED (SELECT belfry_now() - make_interval(secs => $1::float8) AS at),
old AS MATERIALIZED (
    SELECT k.schedule, k.planned_at FROM schedules s CROSS JOIN LATERAL (
        SELECT n.schedule, n.planned_at FROM ticks n
        WHERE n.schedule = s.name AND n.planned_at < least(s.mark, (SELECT at FROM cutoff))
          AND n.decided_at < (SELECT at FROM cutoff)
          AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = n.task_id)
        ORDER BY n.planned_at LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) k LIMIT $2
),
gone AS (
    DELETE FROM ticks k USING old o WHERE k.schedule = o.schedule AND k.planned_at = o.planned_at
    RETURNING k.schedule
)
SELECT count(*) AS rows FROM gone
