-- A page, behind a name ($2), of what was applied, changed or removed since a revision.
SELECT name, mark, removed_at IS NOT NULL AS removed, spec FROM schedules
WHERE revision > $1 AND name > $2
ORDER BY name LIMIT $3
