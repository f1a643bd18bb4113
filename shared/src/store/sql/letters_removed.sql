-- The dead queue was walked after these letters were resolved. A copy that was confirmed since the
-- walk began ($2 ms ago) may have been behind it.
UPDATE dead_letters SET removed_at = belfry_now()
WHERE id = ANY ($1::bigint[]) AND resolved_at IS NOT NULL AND removed_at IS NULL
  AND published_at < belfry_now() - make_interval(secs => $2::bigint / 1000.0)
