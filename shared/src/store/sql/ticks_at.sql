-- What became of these instants: their own rows, or the span of missed ones in which each lies.
SELECT i.at, k.outcome, k.task_id, t.state
FROM unnest($2::timestamptz[]) AS i (at)
JOIN LATERAL (
    SELECT outcome, task_id, coalesce(first_at, planned_at) AS first_at FROM ticks
    WHERE schedule = $1 AND planned_at >= i.at ORDER BY planned_at LIMIT 1
) k ON k.first_at <= i.at
LEFT JOIN tasks t ON t.id = k.task_id
