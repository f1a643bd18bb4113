-- Alerts, newest first.
SELECT id, kind, dead_letter_id, seq, stage, subjects, text, created_at, tries, sent_at, last_error
FROM alerts ORDER BY id DESC LIMIT $1
