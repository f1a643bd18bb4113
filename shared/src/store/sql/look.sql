-- What has no confirmed message: the relay's work, urgent tasks first. A backup leaves what is not late
-- by $2 ms to the leader's relay. Each part ends at the limit ($1), so that a long backlog is not read
-- to its end. Continued by unpublished.sql.
WITH wanted AS MATERIALIZED (
    (SELECT t.id FROM tasks t
     WHERE t.finished_at IS NULL AND t.priority > 0
       AND t.published_at IS NULL AND t.state IN ('queued', 'retrying')
       AND ($2::bigint = 0 OR t.due_at < belfry_now() - make_interval(secs => $2::bigint / 1000.0))
     LIMIT $1)
    UNION ALL
    (SELECT t.id FROM tasks t
     WHERE t.finished_at IS NULL AND t.priority <= 0
       AND t.published_at IS NULL AND t.state IN ('queued', 'retrying')
       AND ($2::bigint = 0 OR t.due_at < belfry_now() - make_interval(secs => $2::bigint / 1000.0))
     LIMIT $1)
    LIMIT $1
)
