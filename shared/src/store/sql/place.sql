-- A process of another installation that was seen lately and has not stopped in good order, if there is
-- one: the same database, another corner of the broker. Lately is five minutes: longer than most
-- outages, in which nobody is seen. The oldest speaks for it.
SELECT w.label, w.place FROM workers w
WHERE w.stopped_at IS NULL AND w.place <> $1 AND w.seen_at > belfry_now() - interval '5 minutes'
ORDER BY w.started_at LIMIT 1
