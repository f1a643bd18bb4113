-- Calls that nobody waits for any more: their attempt has ended without a word about them (a handler
-- completed while it asked). They may have been billed. Whom a quota had sent away and who has ended
-- since waits no more.
WITH done AS (
    DELETE FROM llm_waits w
    WHERE w.task_id IN (SELECT k.task_id FROM llm_waits k LEFT JOIN tasks t ON t.id = k.task_id
                        WHERE t.id IS NULL OR t.finished_at IS NOT NULL
                        FOR UPDATE OF k SKIP LOCKED)
)
UPDATE llm_calls c
SET state = 'unknown', ended_at = belfry_now(), error_class = 'unknown_outcome',
    error_message = 'the attempt ended before the answer was stored; the call may have been billed'
WHERE c.state = 'sent' AND c.id IN (
    SELECT k.id FROM llm_calls k LEFT JOIN tasks t ON t.id = k.task_id
    WHERE k.state = 'sent' AND (t.state = 'running' AND t.claim_token = k.token) IS NOT TRUE
    FOR UPDATE OF k SKIP LOCKED)
RETURNING c.id
