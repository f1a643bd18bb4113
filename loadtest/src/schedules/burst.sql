-- The first second after $1 in which all of $2 schedules were due together and decided, and $3 seconds
-- have passed, in which their messages were published.
SELECT planned_at FROM ticks
WHERE planned_at > $1 AND schedule LIKE 'due\_%'
GROUP BY planned_at
HAVING count(*) = $2 AND max(decided_at) < belfry_now() - make_interval(secs => $3::float8)
ORDER BY planned_at LIMIT 1
