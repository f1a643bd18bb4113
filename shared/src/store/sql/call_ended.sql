-- How a call ended. Not fenced: the money is spent, whoever holds the task now, and the answer may
-- be reused by the successor. What it held is given back by the trigger on llm_calls. An answer that
-- closes the model ($13: for so many ms, $14: until somebody opens it) does so for the whole fleet, by
-- the database's clock, and never shortens an earlier one. Where the provider names no time, a probe that
-- hears the same word again doubles the pause, up to $16 ms: else it would be asked at one pace for ever.
WITH ended AS (
    UPDATE llm_calls
    SET state = $2, ended_at = belfry_now(), response = $3, response_model = $4, input_tokens = $5,
        output_tokens = $6, cached_tokens = $7, reasoning_tokens = $8, usage_estimated = $9,
        cost_micro = $10, error_class = $11, error_message = $12, traceparent = coalesce($15, traceparent)
    WHERE id = $1 AND state IN ('sent', 'unknown')
    RETURNING id, model, endpoint
),
was AS MATERIALIZED (
    SELECT q.scope, q.name, q.closed_until, q.closed_at, q.closed_reason,
           q.closed_until IS NOT NULL AND q.closed_endpoint = e.endpoint AS closed, e.endpoint
    FROM ended e JOIN llm_quotas q ON q.scope = 'model' AND q.name = e.model
    WHERE $13::bigint IS NOT NULL OR $14::boolean
    FOR UPDATE OF q
),
wish AS (
    SELECT w.*, n.now,
           CASE WHEN $14::boolean THEN 'infinity' ELSE n.now + greatest(make_interval(secs => $13::bigint / 1000.0),
               CASE WHEN $16::bigint IS NOT NULL AND w.closed AND w.closed_until <= n.now
                    THEN least(2 * (w.closed_until - w.closed_at), make_interval(secs => $16::bigint / 1000.0)) END) END AS until
    FROM was w, (SELECT belfry_now() AS now, count(*) FROM was) n
),
closed AS (
    UPDATE llm_quotas q
    SET closed_until = CASE WHEN w.closed THEN greatest(w.closed_until, w.until) ELSE w.until END,
        closed_at = CASE WHEN w.closed AND w.closed_until > w.now THEN w.closed_at ELSE w.now END,
        closed_reason = CASE WHEN w.closed AND w.closed_until > w.until THEN w.closed_reason ELSE coalesce($12, '') END,
        closed_endpoint = w.endpoint
    FROM wish w WHERE q.scope = w.scope AND q.name = w.name
)
-- A closing that only a person ends is told to one, once.
INSERT INTO alerts (kind, text, created_at, next_try_at)
SELECT 'quota',
       format('Model %s at %s is closed until somebody opens it: %s. Its tasks wait; when it is mended: producer quota open %s',
              w.name, w.endpoint, left(coalesce($12, ''), 500), w.name),
       w.now, w.now
FROM wish w WHERE w.until = 'infinity' AND NOT (w.closed AND w.closed_until = 'infinity')
