-- The webhook accepted it (or there is none and the row is all there is).
UPDATE alerts SET sent_at = belfry_now(), last_error = NULL WHERE id = $1 AND sent_at IS NULL
