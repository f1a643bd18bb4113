-- Decides planned instants: leadership check, tick row, key, task and mark in one statement.
-- The share locks on the rows of leadership and schedule_file make a takeover and an apply wait for
-- us. At most one running tick per schedule and statement, since overlap is judged on rows that this
-- statement cannot see. An apply ($1 is NULL) holds schedule_file alone and needs no term.
-- `(x IN (SELECT …)) IS TRUE` is looked up in a hash; a join of the parts would compare each with each.
-- The file is locked first: whoever waits for a long apply must not keep the lead from being renewed.
-- A leader's clock is this one as it was some seconds ago: where it has gone back since, an instant
-- would be decided before its time. The tolerance is for clocks that are being slewed.
WITH leader AS (
    SELECT l.epoch FROM schedule_file f, leadership l
    WHERE l.name = 'producer' AND l.token = $1 AND l.lease_until > belfry_now() AND f.revision = $2
      AND (SELECT max(p) FROM unnest($4::timestamptz[]) p) < belfry_now() + interval '1 second'
    FOR SHARE
),
term AS (
    SELECT epoch FROM leader
    UNION ALL
    SELECT coalesce((SELECT epoch FROM leadership WHERE name = 'producer'), 0) WHERE $1 IS NULL
),
clock AS MATERIALIZED (SELECT belfry_now() AS now),
input AS (
    SELECT i.*, t.epoch
    FROM unnest($3::text[], $4::timestamptz[], $5::boolean[], $6::timestamptz[], $7::bigint[], $8::uuid[],
                $9::text[], $10::bytea[], $11::text[], $12::text[], $13::jsonb[], $14::bigint[],
                $15::int[], $16::bigint[], $17::bigint[], $18::boolean[], $19::text[], $20::text[],
                $21::boolean[], $22::bigint[], $23::bigint[], $24::smallint[])
        AS i (schedule, planned_at, run, first_at, count, id, execution_key, payload_hash, task_type,
              pool, payload, timeout_ms, max_retry, base_ms, max_ms, at_most_once, overlap, traceparent,
              paused, delay_ms, deadline_ms, priority),
        term t
),
timed AS (
    SELECT i.*, coalesce(i.first_at, i.planned_at) AS began_at,
           i.planned_at + make_interval(secs => i.deadline_ms / 1000.0) AS start_by,
           greatest(c.now, i.planned_at + make_interval(secs => i.delay_ms / 1000.0)) AS due_at
    FROM input i, clock c
),
fresh AS (
    SELECT i.*, k.task_id AS known, k.payload_hash AS known_hash,
           -- A pause comes before all else: nobody waits for its instants. A span of which a part only lies
           -- in a pause by hand was missed, and so is not hidden; the caller cuts spans where pauses begin and end.
           CASE WHEN i.paused OR i.began_at >= s.paused_at
                     OR s.pauses @> tstzrange(i.began_at, i.planned_at, '[]') THEN 'paused'
                WHEN NOT i.run OR i.start_by < c.now THEN 'missed'
                WHEN s.paused_at IS NOT NULL THEN 'paused'
                WHEN i.overlap = 'skip' AND o.unfinished THEN 'skipped_overlap'
                WHEN i.overlap = 'queue' AND o.waiting THEN 'skipped_overlap'
                WHEN k.task_id IS NOT NULL THEN 'deduplicated'
                ELSE 'enqueued' END AS decision,
           CASE WHEN i.overlap IN ('queue', 'queue_all', 'replace') AND o.unfinished THEN 'waiting'
                WHEN i.due_at > c.now + interval '1 hour' THEN 'scheduled'
                ELSE 'queued' END AS begins
    FROM timed i
    JOIN schedules s ON s.name = i.schedule AND s.removed_at IS NULL
    -- A key that the schedule took under a name it had before.
    LEFT JOIN LATERAL (
        SELECT x.task_id, x.payload_hash FROM execution_keys x
        WHERE x.name = ANY (s.formerly) AND x.execution_key = i.execution_key
        ORDER BY x.created_at DESC LIMIT 1
    ) k ON true,
    LATERAL (
        SELECT count(*) > 0 AS unfinished, count(*) FILTER (WHERE t.state = 'waiting') > 0 AS waiting
        FROM tasks t WHERE t.schedule = i.schedule AND t.finished_at IS NULL
    ) o,
    clock c
    WHERE NOT EXISTS (
        SELECT FROM ticks k WHERE k.schedule = i.schedule AND k.planned_at = i.planned_at)
),
keyed AS (
    INSERT INTO execution_keys AS k (name, execution_key, payload_hash, task_id, created_at, expires_at)
    SELECT f.schedule, f.execution_key, f.payload_hash, f.id, c.now, c.now + make_interval(secs => $25::float8)
    FROM fresh f, clock c WHERE f.decision = 'enqueued'
    ORDER BY f.schedule, f.execution_key
    ON CONFLICT (name, execution_key) DO UPDATE SET name = excluded.name
    RETURNING k.name, k.execution_key, k.payload_hash, k.task_id
),
-- Keys that others hold: their tasks are the answer.
held AS MATERIALIZED (
    SELECT y.name, y.execution_key, y.payload_hash, y.task_id FROM keyed y
    WHERE (y.task_id IN (SELECT f.id FROM fresh f)) IS NOT TRUE
),
decided AS (
    INSERT INTO ticks AS k (schedule, planned_at, outcome, task_id, decided_at, epoch, first_at, count, other_payload)
    SELECT f.schedule, f.planned_at,
           CASE WHEN h.task_id IS NULL THEN f.decision ELSE 'deduplicated' END,
           CASE f.decision WHEN 'enqueued' THEN coalesce(h.task_id, f.id) WHEN 'deduplicated' THEN f.known END,
           c.now, f.epoch, f.first_at, f.count,
           coalesce(h.payload_hash <> f.payload_hash, f.decision = 'deduplicated' AND f.known_hash <> f.payload_hash)
    FROM fresh f LEFT JOIN held h ON h.name = f.schedule AND h.execution_key = f.execution_key, clock c
    ON CONFLICT (schedule, planned_at) DO NOTHING
    RETURNING k.schedule, k.planned_at, k.outcome, k.task_id, k.other_payload
),
said AS (
    INSERT INTO task_inputs (task_id, name, execution_key, task_type, payload, timeout_ms, max_retry,
                             backoff_base_ms, backoff_max_ms, at_most_once, scheduled_for, traceparent,
                             created_at)
    SELECT f.id, f.schedule, f.execution_key, f.task_type, f.payload, f.timeout_ms, f.max_retry,
           f.base_ms, f.max_ms, f.at_most_once, f.planned_at, f.traceparent, c.now
    FROM fresh f, clock c WHERE (f.id IN (SELECT d.task_id FROM decided d)) IS TRUE
),
made AS (
    INSERT INTO tasks (id, pool, schedule, state, due_at, start_by, priority)
    SELECT f.id, f.pool, f.schedule, f.begins, f.due_at, f.start_by, f.priority
    FROM fresh f WHERE (f.id IN (SELECT d.task_id FROM decided d)) IS TRUE
),
-- What an earlier tick left unfinished makes way: at once where no handler runs, else it is told.
replaced AS (
    UPDATE tasks t
    SET cancel_requested_at = coalesce(t.cancel_requested_at, c.now),
        state = CASE WHEN t.state = 'running' THEN t.state ELSE 'cancelled' END,
        finished_at = CASE WHEN t.state = 'running' THEN NULL ELSE c.now END
    FROM fresh f, clock c
    WHERE f.overlap = 'replace' AND (f.id IN (SELECT d.task_id FROM decided d)) IS TRUE
      AND t.schedule = f.schedule AND t.finished_at IS NULL AND t.id <> f.id
),
marked AS (
    -- What is decided needs no pause any more.
    UPDATE schedules s
    SET mark = greatest(s.mark, m.newest), pauses = s.pauses * tstzmultirange(tstzrange(m.newest, NULL, '()'))
    FROM (SELECT schedule, max(planned_at) AS newest FROM input GROUP BY schedule) m
    WHERE s.name = m.schedule
)
SELECT d.schedule, d.planned_at, d.outcome, d.task_id, true AS fresh, d.other_payload AS conflict
FROM decided d
UNION ALL
SELECT i.schedule, i.planned_at, k.outcome, k.task_id, false, false
FROM input i LEFT JOIN ticks k ON k.schedule = i.schedule AND k.planned_at = i.planned_at
WHERE ((i.schedule, i.planned_at) IN (SELECT d.schedule, d.planned_at FROM decided d)) IS NOT TRUE
