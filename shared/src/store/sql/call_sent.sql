-- Written before a call goes out, by the holder of the claim only. What an earlier attempt had sent
-- and never ended is unknown from now on. Zero rows: fenced.
WITH mine AS (
    SELECT t.id, t.run FROM tasks t
    WHERE t.id = $2 AND t.state = 'running' AND t.claim_token = $3
    FOR SHARE
),
stale AS (
    UPDATE llm_calls c SET state = 'unknown', ended_at = belfry_now(), error_class = 'unknown_outcome',
           error_message = 'the attempt ended before the answer was stored; the call may have been billed'
    FROM mine m WHERE c.task_id = m.id AND c.state = 'sent'
)
INSERT INTO llm_calls AS c (id, task_id, step, call_no, run, token, state, request_hash, endpoint, model,
                            traceparent, started_at)
SELECT $1, m.id, $4, $5, m.run, $3, 'sent', $6, $7, $8, $9, belfry_now() FROM mine m
ON CONFLICT (id) DO UPDATE SET model = excluded.model
RETURNING c.id
