-- Tells that a budget ($1, $2) has no room for a call, once on its day ($3): zero rows where somebody has.
WITH untold AS (
    UPDATE llm_quotas SET budget_told_on = $3::date
    WHERE scope = $1 AND name = $2 AND budget_told_on IS DISTINCT FROM $3::date
    RETURNING scope
)
INSERT INTO alerts (kind, text, created_at, next_try_at)
SELECT 'quota', $4::text, n.now, n.now FROM untold, (SELECT belfry_now() AS now) n
RETURNING id
