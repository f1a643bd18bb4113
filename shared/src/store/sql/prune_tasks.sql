-- Deletes one chunk ($3) of finished tasks whose time is over, with input, result, attempts, steps,
-- model calls and who asked for it by hand: completed and cancelled ones $1 seconds after their end, dead ones $2 seconds after
-- their letter was discarded. An open letter keeps its task. What is not deleted here outlives its
-- task: the key, so that a late duplicate is still one, and the letters, ticks and reports.
WITH cutoff AS MATERIALIZED (
    SELECT belfry_now() - make_interval(secs => $1::float8) AS ended,
           belfry_now() - make_interval(secs => $2::float8) AS discarded
),
ended AS MATERIALIZED (
    SELECT t.id FROM task_inputs i JOIN tasks t ON t.id = i.task_id
    WHERE i.created_at < (SELECT ended FROM cutoff) AND t.state IN ('completed', 'cancelled')
      AND t.finished_at < (SELECT ended FROM cutoff)
    ORDER BY i.created_at LIMIT $3
    FOR UPDATE OF t SKIP LOCKED
),
discarded AS MATERIALIZED (
    SELECT t.id FROM dead_letters l JOIN tasks t ON t.id = l.task_id AND t.run = l.run
    WHERE l.resolved_at < (SELECT discarded FROM cutoff) AND l.resolution = 'discarded' AND t.state = 'dead'
    ORDER BY l.resolved_at LIMIT $3
    FOR UPDATE OF t SKIP LOCKED
),
old AS (
    SELECT id FROM ended UNION ALL SELECT id FROM discarded
),
gone AS (
    DELETE FROM tasks t USING old o WHERE t.id = o.id AND t.finished_at IS NOT NULL RETURNING t.id
),
inputs AS (DELETE FROM task_inputs i USING gone g WHERE i.task_id = g.id),
results AS (DELETE FROM task_results r USING gone g WHERE r.task_id = g.id),
tried AS (DELETE FROM attempts a USING gone g WHERE a.task_id = g.id),
stepped AS (DELETE FROM steps s USING gone g WHERE s.task_id = g.id),
called AS (DELETE FROM llm_calls c USING gone g WHERE c.task_id = g.id),
asked AS (DELETE FROM by_hand h USING gone g WHERE h.task_id = g.id)
SELECT count(*) AS rows FROM gone
