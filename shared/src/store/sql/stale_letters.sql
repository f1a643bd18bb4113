-- Resolved letters whose copy may still be in the dead queue, oldest first.
SELECT id FROM dead_letters
WHERE resolved_at IS NOT NULL AND published_at IS NOT NULL AND removed_at IS NULL
ORDER BY id LIMIT $1
