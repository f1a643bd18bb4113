-- Where pauses by hand of these schedules begin and end that may hold undecided instants.
SELECT s.name, e.edge
FROM schedules s
CROSS JOIN LATERAL (
    SELECT lower(r) FROM unnest(s.pauses) r
    UNION SELECT upper(r) FROM unnest(s.pauses) r
    UNION SELECT s.paused_at
) e (edge)
WHERE s.name = ANY ($1::text[]) AND e.edge IS NOT NULL
ORDER BY s.name, e.edge
