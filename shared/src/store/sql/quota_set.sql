-- Limits by hand: those of $3 (JSON, by column) replace, the others stay. They count until the file's
-- entry changes. A waiting line that was made for other limits is forgotten.
INSERT INTO llm_quotas AS q (scope, name, requests_per_minute, burst, tokens_per_minute, token_burst, max_in_flight,
                             daily_tokens, daily_cost_micro, timezone, over_budget, set_by, set_at)
SELECT $1, $2, i.requests_per_minute, i.burst, i.tokens_per_minute, i.token_burst, i.max_in_flight,
       i.daily_tokens, i.daily_cost_micro, coalesce(i.timezone, 'UTC'), coalesce(i.over_budget, 'park'), $4, belfry_now()
FROM jsonb_populate_record(NULL::llm_quotas, $3) i
ON CONFLICT (scope, name) DO UPDATE
SET (requests_per_minute, burst, tokens_per_minute, token_burst, max_in_flight, daily_tokens,
     daily_cost_micro, timezone, over_budget) = (
        SELECT n.requests_per_minute, n.burst, n.tokens_per_minute, n.token_burst, n.max_in_flight,
               n.daily_tokens, n.daily_cost_micro, n.timezone, n.over_budget
        FROM jsonb_populate_record(q, $3) n),
    set_by = $4, set_at = belfry_now(), turn_at = '-infinity', park_turn_at = '-infinity', budget_told_on = NULL
RETURNING q.name
