-- Fences incarnations whose lease is over and gives back the running tasks of every fenced one,
-- not only of those fenced just now: a claim in flight is invisible to the statement that fences.
-- An inner join on fenced rows, never NOT EXISTS (which would take fresh claims).
-- Continued by give_back.sql.
WITH over AS (
    UPDATE workers SET fenced_at = belfry_now()
    WHERE id IN (SELECT w.id FROM workers w
                 WHERE w.fenced_at IS NULL AND w.lease_until < belfry_now()
                 FOR UPDATE SKIP LOCKED)
      AND fenced_at IS NULL AND lease_until < belfry_now()
    RETURNING id
),
victims AS MATERIALIZED (
    SELECT t.id, t.claim_token
    FROM tasks t JOIN workers w ON w.id = t.incarnation
    WHERE t.finished_at IS NULL AND t.state = 'running'
      AND (w.fenced_at IS NOT NULL OR w.id IN (SELECT id FROM over))
)
