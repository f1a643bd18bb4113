-- Closes a letter without another run.
UPDATE dead_letters SET resolved_at = belfry_now(), resolution = 'discarded', resolved_by = $2
WHERE id = $1 AND resolved_at IS NULL
RETURNING id
