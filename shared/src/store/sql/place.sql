-- A process of another installation that was seen lately and has not stopped in good order, if there is
-- one: the same database, another corner of the broker. Lately is five minutes: longer than most
-- outages, in which nobody is seen. The one that was seen last speaks for it.
SELECT w.label, w.place FROM workers w
WHERE w.stopped_at IS NULL AND w.place <> $1 AND w.seen_at > belfry_now() - interval '5 minutes'
ORDER BY w.fenced_at IS NULL DESC, w.seen_at DESC LIMIT 1
