-- Marks what the broker confirmed. The run that was read is repeated: a late mark must not hide a
-- task that was given back meanwhile.
UPDATE tasks t SET published_at = belfry_now()
FROM unnest($1::uuid[], $2::int[]) AS i (id, run)
WHERE t.id = i.id AND t.run = i.run AND t.state IN ('queued', 'retrying')
RETURNING t.id
