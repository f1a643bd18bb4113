-- A page of what was applied, changed or removed from a revision ($1) and a name in it ($2) on, up to a
-- revision ($3): what changes while pages are read has a later one. An apply may have touched them all,
-- so that the order must be an index's.
SELECT revision, name, mark, removed_at IS NOT NULL AS removed, spec FROM schedules
WHERE (revision, name) > ($1, $2) AND revision <= $3
ORDER BY revision, name LIMIT $4
