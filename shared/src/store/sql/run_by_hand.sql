-- Runs of one schedule that somebody asked for: key, task, input and record in one statement. The
-- caller holds the lock of lock_schedule.sql. What has its key already is answered before overlap is asked, so
-- that a repeat finds its task even while that runs. Of several runs that may not overlap ($10) the
-- first begins and the others wait, in the order of their ids. A key that the schedule took under a name
-- it had before holds.
WITH clock AS MATERIALIZED (SELECT belfry_now() AS now),
input AS (
    SELECT * FROM unnest($2::uuid[], $3::text[], $4::bytea[], $5::jsonb[], $6::timestamptz[], $7::text[], $20::smallint[])
        WITH ORDINALITY AS i (id, execution_key, payload_hash, payload, scheduled_for, traceparent, priority, ord)
),
known AS MATERIALIZED (
    SELECT DISTINCT ON (k.execution_key) k.execution_key, k.task_id, k.payload_hash
    FROM input i JOIN execution_keys k ON k.execution_key = i.execution_key
    WHERE k.name = $1 OR k.name = ANY (SELECT unnest(s.formerly) FROM schedules s WHERE s.name = $1)
    ORDER BY k.execution_key, k.name <> $1, k.created_at DESC
),
before AS MATERIALIZED (
    SELECT count(*) > 0 AS unfinished, count(*) FILTER (WHERE state = 'waiting') > 0 AS waiting,
           (array_agg(id ORDER BY id))[1] AS oldest
    FROM tasks WHERE schedule = $1 AND finished_at IS NULL
),
-- Instants of one batch may share a key: the first of them has it.
fresh AS (
    SELECT f.*, row_number() OVER (ORDER BY f.ord) AS place
    FROM (SELECT DISTINCT ON (i.execution_key) i.* FROM input i
          WHERE NOT EXISTS (SELECT FROM known k WHERE k.execution_key = i.execution_key)
          ORDER BY i.execution_key, i.ord) f, before b
    WHERE NOT ($10 = 'skip' AND b.unfinished OR $10 = 'queue' AND b.waiting)
),
keyed AS (
    INSERT INTO execution_keys AS k (name, execution_key, payload_hash, task_id, created_at, expires_at)
    SELECT $1, f.execution_key, f.payload_hash, f.id, c.now, c.now + make_interval(secs => $19::float8)
    FROM fresh f, clock c ORDER BY f.execution_key
    ON CONFLICT (name, execution_key) DO UPDATE SET name = excluded.name
    RETURNING k.execution_key, k.task_id, k.payload_hash
),
ours AS (
    SELECT f.*, c.now,
           CASE WHEN $10 IN ('queue', 'queue_all', 'replace') AND (b.unfinished OR f.place > 1)
                THEN 'waiting' ELSE 'queued' END AS begins
    FROM fresh f JOIN keyed y ON y.task_id = f.id, clock c, before b
),
said AS (
    INSERT INTO task_inputs (task_id, name, execution_key, task_type, payload, timeout_ms, max_retry,
                             backoff_base_ms, backoff_max_ms, at_most_once, scheduled_for, traceparent,
                             created_at)
    SELECT o.id, $1, o.execution_key, $8::text, o.payload, $11::bigint, $12::int, $13::bigint, $14::bigint, $15::boolean, o.scheduled_for,
           o.traceparent, o.now
    FROM ours o
),
made AS (
    INSERT INTO tasks (id, pool, schedule, state, due_at, priority)
    SELECT o.id, $9::text, $1, o.begins, o.now, o.priority FROM ours o
),
recorded AS (
    INSERT INTO by_hand (task_id, schedule, kind, scheduled_for, forced, asked_by, asked_at)
    SELECT o.id, $1, $16::text, o.scheduled_for, $17::boolean AND b.unfinished, $18::text, o.now FROM ours o, before b
),
-- As a tick does: at once where no handler runs, else it is told.
replaced AS (
    UPDATE tasks t
    SET cancel_requested_at = coalesce(t.cancel_requested_at, c.now),
        state = CASE WHEN t.state = 'running' THEN t.state ELSE 'cancelled' END,
        finished_at = CASE WHEN t.state = 'running' THEN NULL ELSE c.now END
    FROM clock c
    WHERE $10 = 'replace' AND t.schedule = $1 AND t.finished_at IS NULL
      AND EXISTS (SELECT FROM ours) AND t.id NOT IN (SELECT id FROM ours)
)
SELECT i.ord, coalesce(k.task_id, y.task_id) AS task_id,
       coalesce(k.payload_hash, y.payload_hash) = i.payload_hash AS same_payload,
       o.id IS NOT DISTINCT FROM i.id AS made,
       -- A key that was taken since our snapshot: its task has just been made.
       coalesce(o.begins, t.state, CASE WHEN k.task_id IS NULL THEN 'queued' END) AS state,
       b.oldest AS behind
FROM input i
CROSS JOIN before b
LEFT JOIN keyed y ON y.execution_key = i.execution_key
LEFT JOIN known k ON k.execution_key = i.execution_key
LEFT JOIN ours o ON o.id = coalesce(k.task_id, y.task_id)
LEFT JOIN tasks t ON t.id = coalesce(k.task_id, y.task_id)
ORDER BY i.ord
