-- The newest runs of a schedule that people asked for, and where their tasks stand.
SELECT h.task_id, h.kind, h.scheduled_for, h.forced, h.asked_by, h.asked_at, t.state
FROM by_hand h LEFT JOIN tasks t ON t.id = h.task_id
WHERE h.schedule = $1 OR h.schedule = ANY (SELECT unnest(s.formerly) FROM schedules s WHERE s.name = $1)
ORDER BY h.asked_at DESC, h.task_id DESC LIMIT $2
