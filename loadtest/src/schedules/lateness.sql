-- How late the ticks of the bursts since $1 were, in milliseconds: median, 99th percentile, worst.
WITH late AS (
    SELECT extract(epoch FROM k.decided_at - k.planned_at) * 1000 AS decided,
           extract(epoch FROM coalesce(t.published_at, belfry_now()) - k.planned_at) * 1000 AS published
    FROM ticks k JOIN tasks t ON t.id = k.task_id
    WHERE k.planned_at > $1 AND k.schedule LIKE 'due\_%'
)
SELECT percentile_cont(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY decided::float8) AS decided,
       percentile_cont(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY published::float8) AS published
FROM late
