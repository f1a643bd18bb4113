-- Gives back what runs past its deadline, even from a living worker: its own timeout should have
-- fired before. Continued by give_back.sql.
WITH victims AS MATERIALIZED (
    SELECT t.id, t.claim_token FROM tasks t
    WHERE t.finished_at IS NULL AND t.state = 'running' AND t.deadline_at < belfry_now()
    FOR UPDATE SKIP LOCKED
)
