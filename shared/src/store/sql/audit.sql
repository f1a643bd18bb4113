-- A worker gives back rows under its own identity whose token no slot of it holds or is claiming:
-- an abandoned claim, a slot that died, a failover. Continued by give_back.sql.
WITH victims AS MATERIALIZED (
    SELECT t.id, t.claim_token FROM tasks t
    WHERE t.finished_at IS NULL AND t.state = 'running' AND t.incarnation = $4
      AND t.claim_token <> ALL ($5::uuid[])
    FOR UPDATE SKIP LOCKED
)
