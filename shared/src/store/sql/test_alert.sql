-- An alert that tries the webhook. Daemons leave it alone: who asked for it posts it.
INSERT INTO alerts (kind, text, created_at, next_try_at, tries)
SELECT 'test', $1, n.now, n.now, 1 FROM (SELECT belfry_now() AS now) n
RETURNING id, kind, dead_letter_id, seq, stage, subjects, text, created_at, tries
