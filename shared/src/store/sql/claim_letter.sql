-- Somebody looks after an open letter, unless another does. Saying it twice keeps the first time.
UPDATE dead_letters SET claimed_by = $2, claimed_at = coalesce(claimed_at, belfry_now())
WHERE id = $1 AND resolved_at IS NULL AND (claimed_by IS NULL OR claimed_by = $2)
RETURNING id
