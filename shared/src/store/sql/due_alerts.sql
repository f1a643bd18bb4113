-- Takes alerts to post. The next try is put off here, so that a sender that dies is followed by
-- another and two senders do not post at once.
UPDATE alerts a
SET tries = a.tries + 1,
    next_try_at = belfry_now() + make_interval(secs => least(300, 10 * power(2, least(a.tries, 6))))
WHERE a.id IN (
    SELECT id FROM alerts WHERE sent_at IS NULL AND kind <> 'test' AND next_try_at <= belfry_now()
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING a.id, a.kind, a.dead_letter_id, a.seq, a.stage, a.subjects, a.text, a.created_at, a.tries
