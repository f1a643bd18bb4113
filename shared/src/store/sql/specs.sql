-- Entries as they are in force, by name.
SELECT s.name, s.mark, s.spec FROM unnest($1::text[]) AS i (name) JOIN schedules s ON s.name = i.name
WHERE s.removed_at IS NULL
