-- Ends tasks that have not started by their deadline: whoever waited for them waits no longer, and
-- none runs late. A claim refuses them, and asks for this; the sweeps find those nobody claims. The tick
-- that made one says so, for the watch: its row is found by its key.
WITH ended AS (
    UPDATE tasks t SET state = 'cancelled', finished_at = belfry_now()
    WHERE t.id IN (SELECT l.id FROM tasks l
                   WHERE l.finished_at IS NULL AND l.start_by < (SELECT belfry_now()) AND l.run = 0
                   FOR UPDATE SKIP LOCKED)
      AND t.finished_at IS NULL AND t.run = 0
    RETURNING t.id, t.schedule, t.finished_at, t.cancel_requested_at
),
told AS (
    UPDATE ticks k SET not_started_at = e.finished_at
    FROM ended e JOIN task_inputs n ON n.task_id = e.id
    WHERE k.schedule = n.name AND k.planned_at = n.scheduled_for AND k.task_id = e.id
      AND e.cancel_requested_at IS NULL
)
SELECT id, schedule FROM ended
