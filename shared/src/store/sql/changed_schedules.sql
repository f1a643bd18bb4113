-- What was applied, changed or removed since a revision.
SELECT name, mark, removed_at IS NOT NULL AS removed, spec FROM schedules WHERE revision > $1
