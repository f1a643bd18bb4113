-- A quota has changed: those whom it sent away come back now, one after another ($3 ms apart), not at
-- the moment that they were told. The delay of their last attempt says what was made of it.
WITH woken AS (
    UPDATE tasks t
    SET state = 'queued', published_at = NULL,
        due_at = belfry_now() + make_interval(secs => w.place * $3::bigint / 1000.0)
    FROM (SELECT k.task_id, row_number() OVER (ORDER BY k.since, k.task_id) - 1 AS place
          FROM llm_waits k WHERE k.scope = $1 AND k.name = $2) w
    WHERE t.id = w.task_id AND t.state IN ('queued', 'scheduled') AND t.due_at > belfry_now()
    RETURNING t.id, t.run, t.due_at
)
UPDATE attempts a
SET delay_ms = least(a.delay_ms, greatest(0, floor(extract(epoch FROM w.due_at - a.ended_at) * 1000))::bigint)
FROM woken w WHERE a.task_id = w.id AND a.run = w.run
RETURNING a.task_id
