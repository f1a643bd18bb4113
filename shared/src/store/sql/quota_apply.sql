-- What the file says of limits, one entry a row, in the order in which rows are locked. What was set
-- by hand stands until the entry changes. $12: in these scopes the leader applies every change, and lifts
-- what is in the file no more; a worker, which has none, only begins what nobody has applied yet.
WITH input AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::jsonb[], $4::int[], $5::int[], $6::bigint[], $7::bigint[],
                         $8::int[], $9::bigint[], $10::bigint[], $11::text[], $13::text[])
        AS i (scope, name, file, requests_per_minute, burst, tokens_per_minute, token_burst, max_in_flight,
              daily_tokens, daily_cost_micro, timezone, over_budget)
),
lifted AS (
    UPDATE llm_quotas q
    SET file = NULL, requests_per_minute = NULL, burst = NULL, tokens_per_minute = NULL, token_burst = NULL,
        max_in_flight = NULL, daily_tokens = NULL, daily_cost_micro = NULL, over_budget = 'park',
        set_by = NULL, set_at = NULL
    WHERE q.scope = ANY ($12::text[]) AND q.file IS NOT NULL AND (q.scope, q.name) NOT IN (SELECT scope, name FROM input)
    RETURNING q.scope, q.name
),
applied AS (
    INSERT INTO llm_quotas AS q (scope, name, file, requests_per_minute, burst, tokens_per_minute, token_burst,
                                 max_in_flight, daily_tokens, daily_cost_micro, timezone, over_budget)
    SELECT i.scope, i.name, i.file, i.requests_per_minute, i.burst, i.tokens_per_minute, i.token_burst,
           i.max_in_flight, i.daily_tokens, i.daily_cost_micro, i.timezone, i.over_budget
    FROM input i ORDER BY i.scope, i.name
    ON CONFLICT (scope, name) DO UPDATE
    SET file = excluded.file, requests_per_minute = excluded.requests_per_minute, burst = excluded.burst,
        tokens_per_minute = excluded.tokens_per_minute, token_burst = excluded.token_burst,
        max_in_flight = excluded.max_in_flight, daily_tokens = excluded.daily_tokens,
        daily_cost_micro = excluded.daily_cost_micro, timezone = excluded.timezone,
        over_budget = excluded.over_budget, set_by = NULL, set_at = NULL, turn_at = '-infinity',
        park_turn_at = '-infinity'
    WHERE q.file IS DISTINCT FROM excluded.file AND (q.scope = ANY ($12) OR q.file IS NULL AND q.set_by IS NULL)
    RETURNING q.scope, q.name
)
SELECT scope, name FROM applied UNION ALL SELECT scope, name FROM lifted
