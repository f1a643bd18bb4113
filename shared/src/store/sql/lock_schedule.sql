-- People who ask for runs of one schedule are judged one after the other, each seeing what the one
-- before has made. An advisory lock and not the row's: a tick takes its keys before the row, this would
-- take them after it, and both would wait for each other.
SELECT s.name
FROM pg_advisory_xact_lock(hashtext('belfry by hand'), hashtext($1)), schedules s
WHERE s.name = $1 AND s.removed_at IS NULL
