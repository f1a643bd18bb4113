-- The one committed result. Only the holder of the current token writes it; a repeat is answered
-- from the attempt's row.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::text[]) AS i (id, token, result, traceparent)
),
done AS (
    UPDATE tasks t
    SET state = 'completed', finished_at = belfry_now(), claim_token = NULL, incarnation = NULL,
        deadline_at = NULL
    FROM input i
    WHERE t.id = i.id AND t.state = 'running' AND t.claim_token = i.token
    RETURNING t.id, t.run
),
ended AS (
    UPDATE attempts a
    SET ended_at = belfry_now(), outcome = 'completed', traceparent = i.traceparent
    FROM done d JOIN input i ON i.id = d.id
    WHERE a.task_id = d.id AND a.run = d.run
),
kept AS (
    INSERT INTO task_results (task_id, result)
    SELECT d.id, i.result FROM done d JOIN input i ON i.id = d.id
    ON CONFLICT (task_id) DO UPDATE SET result = excluded.result
)
SELECT i.id, d.id IS NOT NULL AS now,
       d.id IS NOT NULL OR EXISTS (
           SELECT FROM attempts a WHERE a.task_id = i.id AND a.token = i.token AND a.outcome = 'completed'
       ) AS recorded
FROM input i LEFT JOIN done d ON d.id = i.id
