-- What a seed amounted to.
SELECT 'tasks' AS what, count(*) AS n FROM tasks
UNION ALL SELECT 'tasks ' || state, count(*) FROM tasks GROUP BY state
UNION ALL SELECT 'ticks', coalesce(sum(count), 0)::bigint FROM ticks
UNION ALL SELECT 'ticks ' || outcome, sum(count)::bigint FROM ticks GROUP BY outcome
UNION ALL SELECT 'attempts', count(*) FROM attempts
UNION ALL SELECT 'attempts ' || outcome, count(*) FROM attempts GROUP BY outcome
UNION ALL SELECT 'terms', coalesce(max(epoch), 0) FROM leadership
UNION ALL SELECT 'incarnations', count(*) FROM workers
UNION ALL SELECT 'incarnations fenced', count(*) FROM workers WHERE fenced_at IS NOT NULL
UNION ALL SELECT 'letters', count(*) FROM dead_letters
