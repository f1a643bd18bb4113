-- Nobody looks after an open letter any more: it is alerted again.
UPDATE dead_letters SET claimed_by = NULL, claimed_at = NULL
WHERE id = $1 AND resolved_at IS NULL
RETURNING id
