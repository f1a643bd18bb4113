-- The webhook did not; the next try stands already.
UPDATE alerts SET last_error = $2 WHERE id = $1 AND sent_at IS NULL
