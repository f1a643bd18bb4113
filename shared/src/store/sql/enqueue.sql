-- Creates tasks whose keys are free and answers for all: the task that now stands for each key.
-- DO UPDATE (not DO NOTHING) so that an existing key's row comes back even when it was written
-- after our snapshot; keys are taken in one order, so that two batches cannot wait for each other.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[],
                         $7::jsonb[], $8::bigint[], $9::timestamptz[], $10::bigint[], $11::int[],
                         $12::bigint[], $13::bigint[], $14::boolean[], $15::text[])
        WITH ORDINALITY AS i (id, name, execution_key, payload_hash, task_type, pool, payload,
                              delay_ms, due_at, timeout_ms, max_retry, base_ms, max_ms,
                              at_most_once, traceparent, ord)
),
clock AS MATERIALIZED (SELECT belfry_now() AS now),
keyed AS (
    INSERT INTO execution_keys AS k (name, execution_key, payload_hash, task_id, created_at, expires_at)
    SELECT i.name, i.execution_key, i.payload_hash, i.id, c.now, c.now + make_interval(secs => $16::float8)
    FROM input i, clock c ORDER BY i.name, i.execution_key
    ON CONFLICT (name, execution_key) DO UPDATE SET name = excluded.name
    RETURNING k.name, k.execution_key, k.payload_hash, k.task_id
),
fresh AS (
    SELECT i.*, c.now, coalesce(i.due_at, c.now + make_interval(secs => i.delay_ms / 1000.0)) AS due
    FROM input i JOIN keyed k ON k.task_id = i.id, clock c
),
said AS (
    INSERT INTO task_inputs (task_id, name, execution_key, task_type, payload, timeout_ms, max_retry,
                             backoff_base_ms, backoff_max_ms, at_most_once, traceparent, created_at)
    SELECT id, name, execution_key, task_type, payload, timeout_ms, max_retry, base_ms, max_ms,
           at_most_once, traceparent, now
    FROM fresh
    ON CONFLICT (task_id) DO NOTHING
),
made AS (
    INSERT INTO tasks AS t (id, pool, state, due_at)
    SELECT id, pool, CASE WHEN due > now + interval '1 hour' THEN 'scheduled' ELSE 'queued' END, due
    FROM fresh
    ON CONFLICT (id) DO NOTHING
    RETURNING t.id, t.state
)
SELECT i.ord, k.task_id, k.payload_hash = i.payload_hash AS same_payload,
       -- A key whose task was pruned: that task had finished.
       coalesce(m.state, t.state, 'completed') AS state,
       k.task_id <> i.id AS deduplicated, m.id IS NOT NULL AS created
FROM input i
JOIN keyed k USING (name, execution_key)
LEFT JOIN made m ON m.id = k.task_id
LEFT JOIN tasks t ON t.id = k.task_id
ORDER BY i.ord
