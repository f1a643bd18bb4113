-- After the storm: no message of a task is left, ready or in a worker's hands (NULL: not asked).
SELECT format('%s holds %s ready and %s unacked messages', q.name, q.ready, coalesce(q.unacked::text, '?')) AS offender,
       q.ready + coalesce(q.unacked, 0) > 0 AS broken
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS q (name, ready, unacked)
