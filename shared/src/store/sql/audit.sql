-- A worker gives back rows under its own identity whose token no slot of it holds or is claiming:
-- an abandoned claim, a slot that died, a failover. Continued by give_back.sql.
WITH victims AS MATERIALIZED (
    SELECT t.id, t.claim_token FROM tasks t
    WHERE t.finished_at IS NULL AND t.state = 'running' AND t.incarnation = $4
      AND t.claim_token <> ALL ($5::uuid[])
      -- Claims younger than the list of tokens may be missing in it.
      AND EXISTS (SELECT FROM attempts a WHERE a.task_id = t.id AND a.run = t.run
                  AND a.started_at < belfry_now() - make_interval(secs => $6::bigint / 1000.0))
    FOR UPDATE SKIP LOCKED
)
