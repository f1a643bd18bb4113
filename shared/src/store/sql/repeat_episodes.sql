-- Troubles that last are to be told again, $1 ms after they were told, unless an earlier alert of the
-- kind still waits for the webhook. What is no state but an event (missed ticks, a lost process) is
-- told once.
WITH due AS (
    UPDATE episodes e SET told_at = belfry_now()
    WHERE e.ended_at IS NULL AND e.kind IN ('no_next_tick', 'behind')
      AND e.told_at <= belfry_now() - make_interval(secs => $1::bigint / 1000.0)
      AND NOT EXISTS (SELECT FROM alerts a WHERE a.kind = e.kind AND a.sent_at IS NULL)
    RETURNING e.kind, e.name, e.detail
)
SELECT kind, name, detail FROM due ORDER BY kind, name
