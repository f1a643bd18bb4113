-- A page of the schedules in force behind a name ($1): a file of any size is compared in short
-- statements.
SELECT name, mark, digest FROM schedules
WHERE removed_at IS NULL AND name > $1
ORDER BY name LIMIT $2
