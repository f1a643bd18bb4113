-- The journal of model calls.
SELECT id, task_id, state FROM llm_calls
