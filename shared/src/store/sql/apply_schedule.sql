-- Applies one entry of the file. A new schedule begins now; an unchanged one keeps its mark; an
-- edited or returned one never fires for times before the edit. Only the leader applies.
INSERT INTO schedules AS s (name, spec, cron, timezone, task_type, mark, applied_at)
SELECT $1, $2, $3, $4, $5, n.now, n.now FROM (SELECT belfry_now() AS now) n
ON CONFLICT (name) DO UPDATE
SET spec = excluded.spec, cron = excluded.cron, timezone = excluded.timezone,
    task_type = excluded.task_type, removed_at = NULL,
    mark = CASE WHEN s.spec = excluded.spec AND s.removed_at IS NULL THEN s.mark
                ELSE greatest(s.mark, excluded.mark) END,
    applied_at = CASE WHEN s.spec = excluded.spec AND s.removed_at IS NULL THEN s.applied_at
                      ELSE excluded.applied_at END
RETURNING s.mark
