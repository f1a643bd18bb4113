-- Open letters that nobody has claimed are alerted again, $1 ms after their last alert was accepted:
-- one that still waits for its webhook is followed by none. The number makes it one alert a letter
-- and period, however many producers look at once.
INSERT INTO alerts (kind, dead_letter_id, seq, stage, text, created_at, next_try_at)
SELECT 'dead', l.id, a.seq + 1, 'again',
       format('Dead letter %s is still open and nobody has claimed it (alert %s): task %s of %s gave up after attempt %s (%s: %s)',
              l.id, a.seq + 1, l.task_id, n.name, l.run, l.error_class, left(l.error_message, 500)),
       belfry_now(), belfry_now()
FROM dead_letters l
JOIN task_inputs n ON n.task_id = l.task_id
CROSS JOIN LATERAL (
    SELECT seq, sent_at FROM alerts WHERE dead_letter_id = l.id ORDER BY seq DESC LIMIT 1
) a
WHERE l.resolved_at IS NULL AND l.claimed_by IS NULL
  AND a.sent_at <= belfry_now() - make_interval(secs => $1::bigint / 1000.0)
ORDER BY l.id LIMIT $2
ON CONFLICT (dead_letter_id, seq) DO NOTHING
RETURNING id
