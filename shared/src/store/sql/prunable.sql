-- What pruning would delete now: the conditions of the prune_*.sql, in one snapshot. $1: seconds that
-- finished tasks and their ticks are kept, $2: closed letters, $3: keys, $4: ended incarnations, $5:
-- reports (NULL: for ever).
WITH ago AS MATERIALIZED (
    SELECT n.now, n.now - make_interval(secs => $1::float8) AS tasks,
           n.now - make_interval(secs => $2::float8) AS letters,
           n.now - make_interval(secs => $3::float8) AS keys,
           n.now - make_interval(secs => $4::float8) AS incarnations,
           n.now - make_interval(secs => $5::float8) AS artifacts
    FROM (SELECT belfry_now() AS now) n
),
old AS MATERIALIZED (
    SELECT t.id FROM task_inputs i JOIN tasks t ON t.id = i.task_id
    WHERE i.created_at < (SELECT tasks FROM ago) AND t.state IN ('completed', 'cancelled')
      AND t.finished_at < (SELECT tasks FROM ago)
      AND NOT EXISTS (SELECT FROM llm_calls c WHERE c.task_id = t.id AND c.state = 'sent')
    UNION ALL
    SELECT t.id FROM dead_letters l JOIN tasks t ON t.id = l.task_id AND t.run = l.run
    WHERE l.resolved_at < (SELECT letters FROM ago) AND l.resolution = 'discarded' AND t.state = 'dead'
      AND NOT EXISTS (SELECT FROM llm_calls c WHERE c.task_id = t.id AND c.state = 'sent')
),
staying AS MATERIALIZED (
    SELECT t.id, t.state, t.finished_at FROM tasks t WHERE NOT EXISTS (SELECT FROM old o WHERE o.id = t.id)
)
SELECT (SELECT count(*) FROM old) AS tasks,
       (SELECT count(*) FROM ticks k JOIN schedules s ON s.name = k.schedule
        WHERE k.planned_at < least(s.mark, a.tasks) AND k.decided_at < a.tasks
          AND NOT EXISTS (SELECT FROM staying t WHERE t.id = k.task_id)) AS ticks,
       (SELECT count(*) FROM dead_letters l
        WHERE l.resolved_at < a.letters AND (l.published_at IS NULL OR l.removed_at IS NOT NULL)
          AND NOT EXISTS (SELECT FROM staying t WHERE t.id = l.task_id)) AS dead_letters,
       (SELECT count(*) FROM execution_keys k
        WHERE k.expires_at < a.now AND k.created_at < a.keys
          AND NOT EXISTS (SELECT FROM staying t WHERE t.id = k.task_id
                          AND (t.finished_at IS NULL OR t.state = 'dead'))) AS execution_keys,
       (SELECT count(*) FROM workers w
        WHERE w.fenced_at < a.incarnations
          AND NOT EXISTS (SELECT FROM tasks t
                          WHERE t.finished_at IS NULL AND t.state = 'running' AND t.incarnation = w.id)) AS incarnations,
       greatest((SELECT count(*) FROM alerts t
                 WHERE t.dead_letter_id IS NULL
                   AND coalesce(t.sent_at, CASE WHEN t.kind = 'test' THEN t.created_at END) < a.letters),
                (SELECT count(*) FROM episodes e WHERE e.ended_at < a.letters)) AS alerts,
       (SELECT count(*) FROM artifacts r WHERE r.created_at < a.artifacts) AS artifacts
FROM ago a
