-- Every call of a step in all attempts, oldest first: what it cost. Recent: since the last replay,
-- a person's word that asking again is worth its price.
WITH replayed AS (
    SELECT max(resolved_at) AS at FROM dead_letters WHERE task_id = $1 AND resolution = 'replayed'
)
SELECT c.call_no, c.run, c.request_hash, c.state, c.model, c.response_model, c.input_tokens,
       c.output_tokens, c.cached_tokens, c.reasoning_tokens, c.usage_estimated, c.cost_micro, c.error_class,
       c.started_at > coalesce(r.at, '-infinity') AS recent
FROM llm_calls c CROSS JOIN replayed r
WHERE c.task_id = $1 AND c.step = $2
ORDER BY c.call_no
