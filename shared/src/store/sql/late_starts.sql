-- Ends tasks that have not started by their deadline: whoever waited for them waits no longer, and
-- none runs late. A claim refuses them, and asks for this; the sweeps find those nobody claims.
UPDATE tasks t SET state = 'cancelled', finished_at = belfry_now()
WHERE t.id IN (SELECT l.id FROM tasks l
               WHERE l.finished_at IS NULL AND l.start_by < (SELECT belfry_now()) AND l.run = 0
               FOR UPDATE SKIP LOCKED)
  AND t.finished_at IS NULL AND t.run = 0
RETURNING t.id, t.schedule
