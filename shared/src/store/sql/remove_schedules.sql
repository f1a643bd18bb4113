-- What is no longer in the file stops; its rows stay.
UPDATE schedules SET removed_at = belfry_now()
WHERE removed_at IS NULL AND name <> ALL ($1::text[])
RETURNING name
