-- What is no longer in the file stops; its rows stay.
UPDATE schedules s SET removed_at = $2, revision = $3
FROM unnest($1::text[]) AS i (name)
WHERE s.name = i.name AND s.removed_at IS NULL
