-- Decides planned instants: leadership check, tick row, key, task and mark in one statement.
-- The share lock on the leadership row makes a takeover wait for us. At most one running tick per
-- schedule and statement, since overlap is judged on rows that this statement cannot see.
WITH leader AS (
    SELECT l.epoch FROM leadership l
    WHERE l.name = 'producer' AND l.token = $1 AND l.lease_until > belfry_now()
    FOR SHARE
),
clock AS MATERIALIZED (SELECT belfry_now() AS now),
input AS (
    SELECT i.*, l.epoch
    FROM unnest($2::text[], $3::timestamptz[], $4::boolean[], $5::timestamptz[], $6::bigint[], $7::uuid[],
                $8::text[], $9::bytea[], $10::text[], $11::text[], $12::jsonb[], $13::bigint[],
                $14::int[], $15::bigint[], $16::bigint[], $17::boolean[], $18::text[], $19::text[],
                $20::boolean[])
        AS i (schedule, planned_at, run, first_at, count, id, execution_key, payload_hash, task_type,
              pool, payload, timeout_ms, max_retry, base_ms, max_ms, at_most_once, overlap, traceparent,
              paused),
        leader l
),
fresh AS (
    SELECT i.*,
           CASE WHEN NOT i.run THEN 'missed'
                WHEN i.paused OR s.paused_at IS NOT NULL THEN 'paused'
                WHEN i.overlap = 'skip' AND o.unfinished THEN 'skipped_overlap'
                WHEN i.overlap = 'queue' AND o.waiting THEN 'skipped_overlap'
                ELSE 'enqueued' END AS decision,
           CASE WHEN i.overlap IN ('queue', 'queue_all', 'replace') AND o.unfinished
                THEN 'waiting' ELSE 'queued' END AS begins
    FROM input i
    JOIN schedules s ON s.name = i.schedule AND s.removed_at IS NULL,
    LATERAL (
        SELECT count(*) > 0 AS unfinished, count(*) FILTER (WHERE t.state = 'waiting') > 0 AS waiting
        FROM tasks t WHERE t.schedule = i.schedule AND t.finished_at IS NULL
    ) o
    WHERE NOT EXISTS (
        SELECT FROM ticks k WHERE k.schedule = i.schedule AND k.planned_at = i.planned_at)
),
keyed AS (
    INSERT INTO execution_keys AS k (name, execution_key, payload_hash, task_id, created_at, expires_at)
    SELECT f.schedule, f.execution_key, f.payload_hash, f.id, c.now, c.now + make_interval(secs => $21::float8)
    FROM fresh f, clock c WHERE f.decision = 'enqueued'
    ORDER BY f.schedule, f.execution_key
    ON CONFLICT (name, execution_key) DO UPDATE SET name = excluded.name
    RETURNING k.name, k.execution_key, k.payload_hash, k.task_id
),
decided AS (
    INSERT INTO ticks AS k (schedule, planned_at, outcome, task_id, decided_at, epoch, first_at, count)
    SELECT f.schedule, f.planned_at,
           CASE WHEN y.task_id IS NOT NULL AND y.task_id <> f.id THEN 'deduplicated' ELSE f.decision END,
           y.task_id, c.now, f.epoch, f.first_at, f.count
    FROM fresh f LEFT JOIN keyed y ON y.name = f.schedule AND y.execution_key = f.execution_key, clock c
    ON CONFLICT (schedule, planned_at) DO NOTHING
    RETURNING k.schedule, k.planned_at, k.outcome, k.task_id
),
said AS (
    INSERT INTO task_inputs (task_id, name, execution_key, task_type, payload, timeout_ms, max_retry,
                             backoff_base_ms, backoff_max_ms, at_most_once, scheduled_for, traceparent,
                             created_at)
    SELECT f.id, f.schedule, f.execution_key, f.task_type, f.payload, f.timeout_ms, f.max_retry,
           f.base_ms, f.max_ms, f.at_most_once, f.planned_at, f.traceparent, c.now
    FROM fresh f JOIN decided d ON d.task_id = f.id, clock c
),
made AS (
    INSERT INTO tasks (id, pool, schedule, state, due_at)
    SELECT f.id, f.pool, f.schedule, f.begins, c.now
    FROM fresh f JOIN decided d ON d.task_id = f.id, clock c
),
-- What an earlier tick left unfinished makes way: at once where no handler runs, else it is told.
replaced AS (
    UPDATE tasks t
    SET cancel_requested_at = coalesce(t.cancel_requested_at, c.now),
        state = CASE WHEN t.state = 'running' THEN t.state ELSE 'cancelled' END,
        finished_at = CASE WHEN t.state = 'running' THEN NULL ELSE c.now END
    FROM fresh f JOIN decided d ON d.task_id = f.id, clock c
    WHERE f.overlap = 'replace' AND t.schedule = f.schedule AND t.finished_at IS NULL AND t.id <> f.id
),
marked AS (
    UPDATE schedules s SET mark = greatest(s.mark, m.newest)
    FROM (SELECT schedule, max(planned_at) AS newest FROM input GROUP BY schedule) m
    WHERE s.name = m.schedule
)
SELECT i.schedule, i.planned_at, coalesce(d.outcome, k.outcome) AS outcome,
       coalesce(d.task_id, k.task_id) AS task_id, d.outcome IS NOT NULL AS fresh,
       coalesce(d.outcome = 'deduplicated' AND y.payload_hash <> i.payload_hash, false) AS conflict
FROM input i
LEFT JOIN keyed y ON y.name = i.schedule AND y.execution_key = i.execution_key
LEFT JOIN decided d ON d.schedule = i.schedule AND d.planned_at = i.planned_at
LEFT JOIN ticks k ON k.schedule = i.schedule AND k.planned_at = i.planned_at
