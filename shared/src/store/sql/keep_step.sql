-- Keeps a step's result, by the holder of the claim only. The share lock makes a give-back wait, so
-- that a paused worker's step cannot slip into its successor's history. Zero rows: fenced. A step that
-- is kept anew, since its input changed, keeps attempt, token and instant of the first time: only a new
-- step is progress (give_back.sql).
WITH mine AS (
    SELECT t.id, t.run FROM tasks t
    WHERE t.id = $1 AND t.state = 'running' AND t.claim_token = $2
    FOR SHARE
)
INSERT INTO steps AS s (task_id, name, input_hash, result, run, token, took_ms, created_at)
SELECT m.id, $3, $4, $5, m.run, $2, $6, belfry_now() FROM mine m
ON CONFLICT (task_id, name) DO UPDATE
SET input_hash = excluded.input_hash, result = excluded.result, took_ms = excluded.took_ms
RETURNING s.name
