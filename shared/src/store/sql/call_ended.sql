-- How a call ended. Not fenced: the money is spent, whoever holds the task now, and the answer may
-- be reused by the successor.
UPDATE llm_calls
SET state = $2, ended_at = belfry_now(), response = $3, response_model = $4, input_tokens = $5,
    output_tokens = $6, cached_tokens = $7, reasoning_tokens = $8, usage_estimated = $9,
    cost_micro = $10, error_class = $11, error_message = $12
WHERE id = $1 AND state IN ('sent', 'unknown')
RETURNING id
