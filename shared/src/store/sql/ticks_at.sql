-- What became of these instants: their own rows, or the span in which each lies. A
-- schedule's ticks under a name it had before are its own.
WITH named AS (
    SELECT $1::text AS name
    UNION
    SELECT unnest(formerly) FROM schedules WHERE name = $1
)
SELECT i.at, k.outcome, k.task_id, t.state
FROM unnest($2::timestamptz[]) AS i (at)
JOIN LATERAL (
    SELECT o.outcome, o.task_id
    FROM named n, LATERAL (
        SELECT outcome, task_id, coalesce(first_at, planned_at) AS first_at FROM ticks
        WHERE schedule = n.name AND planned_at >= i.at ORDER BY planned_at LIMIT 1
    ) o
    WHERE o.first_at <= i.at
    ORDER BY n.name <> $1, o.task_id IS NULL LIMIT 1
) k ON true
LEFT JOIN tasks t ON t.id = k.task_id
