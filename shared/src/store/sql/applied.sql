-- A file is in force. Its revision counts changes ($1: 1, or 0 where there were none), so that leaders
-- look again; a file that was read before it ($2) is not applied by a leader any more.
UPDATE schedule_file f
SET revision = f.revision + $1, read_at = greatest(f.read_at, $2),
    applied_at = CASE WHEN $1::bigint > 0 THEN belfry_now() ELSE f.applied_at END,
    applied_by = CASE WHEN $1::bigint > 0 THEN $3 ELSE f.applied_by END
RETURNING f.revision
