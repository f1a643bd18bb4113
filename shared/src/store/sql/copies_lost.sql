-- Open letters whose copy a walk of the dead queue has not seen: purged by hand, or lost with the
-- broker. What was confirmed since the walk began ($2 ms ago) may have been behind it. Only a task's
-- letter can be written again; of an unreadable message the start alone was kept.
UPDATE dead_letters SET published_at = NULL
WHERE resolved_at IS NULL AND task_id IS NOT NULL AND NOT id = ANY ($1::bigint[])
  AND published_at < belfry_now() - make_interval(secs => $2::bigint / 1000.0)
RETURNING id
