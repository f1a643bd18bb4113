-- Deletes one chunk ($3) of finished tasks whose time is over, with input, result, attempts, steps,
-- model calls and who asked for it by hand: completed and cancelled ones $1 seconds after their end, dead ones $2 seconds after
-- their letter was discarded. An open letter keeps its task, and so does a call under way, which holds
-- a part of its quota. What is not deleted here outlives its task: the key, so that a late duplicate is
-- still one, the letters, ticks and reports, and in sums what its calls cost.
WITH cutoff AS MATERIALIZED (
    SELECT belfry_now() - make_interval(secs => $1::float8) AS ended,
           belfry_now() - make_interval(secs => $2::float8) AS discarded
),
ended AS MATERIALIZED (
    SELECT t.id FROM task_inputs i JOIN tasks t ON t.id = i.task_id
    WHERE i.created_at < (SELECT ended FROM cutoff) AND t.state IN ('completed', 'cancelled')
      AND t.finished_at < (SELECT ended FROM cutoff)
      AND NOT EXISTS (SELECT FROM llm_calls c WHERE c.task_id = t.id AND c.state = 'sent')
    ORDER BY i.created_at LIMIT $3
    FOR UPDATE OF t SKIP LOCKED
),
discarded AS MATERIALIZED (
    SELECT t.id FROM dead_letters l JOIN tasks t ON t.id = l.task_id AND t.run = l.run
    WHERE l.resolved_at < (SELECT discarded FROM cutoff) AND l.resolution = 'discarded' AND t.state = 'dead'
      AND NOT EXISTS (SELECT FROM llm_calls c WHERE c.task_id = t.id AND c.state = 'sent')
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
asked AS (DELETE FROM by_hand h USING gone g WHERE h.task_id = g.id),
called AS (DELETE FROM llm_calls c USING gone g WHERE c.task_id = g.id RETURNING c.*),
-- A sum that no column holds is as much as one holds: nothing may keep old tasks from going.
-- In one order, so that two who prune wait for each other and never in a circle.
summed AS (
    INSERT INTO llm_usage AS u (day, model, schedule, task_type, calls, answered, failed, unknown, estimated,
                                input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost_micro,
                                unknown_tokens, unknown_cost_micro)
    SELECT d.day, c.model, coalesce(c.schedule, ''), coalesce(c.task_type, ''), count(*),
           count(*) FILTER (WHERE c.state = 'done'), count(*) FILTER (WHERE c.state = 'failed'),
           count(*) FILTER (WHERE c.state = 'unknown'), count(*) FILTER (WHERE c.usage_estimated),
           least(9223372036854775807, coalesce(sum(c.input_tokens), 0)), least(9223372036854775807, coalesce(sum(c.output_tokens), 0)), least(9223372036854775807, coalesce(sum(c.cached_tokens), 0)),
           least(9223372036854775807, coalesce(sum(c.reasoning_tokens), 0)), least(9223372036854775807, coalesce(sum(c.cost_micro), 0)),
           coalesce(sum(c.est_tokens) FILTER (WHERE c.state = 'unknown'), 0),
           coalesce(sum(c.est_cost_micro) FILTER (WHERE c.state = 'unknown'), 0)
    FROM called c
    CROSS JOIN LATERAL (SELECT coalesce(c.day, (c.started_at AT TIME ZONE 'UTC')::date) AS day) d
    GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (day, model, schedule, task_type) DO UPDATE
    SET calls = u.calls + excluded.calls,
        answered = u.answered + excluded.answered,
        failed = u.failed + excluded.failed,
        unknown = u.unknown + excluded.unknown,
        estimated = u.estimated + excluded.estimated,
        input_tokens = least(9223372036854775807, u.input_tokens::numeric + excluded.input_tokens),
        output_tokens = least(9223372036854775807, u.output_tokens::numeric + excluded.output_tokens),
        cached_tokens = least(9223372036854775807, u.cached_tokens::numeric + excluded.cached_tokens),
        reasoning_tokens = least(9223372036854775807, u.reasoning_tokens::numeric + excluded.reasoning_tokens),
        cost_micro = least(9223372036854775807, u.cost_micro::numeric + excluded.cost_micro),
        unknown_tokens = u.unknown_tokens + excluded.unknown_tokens,
        unknown_cost_micro = u.unknown_cost_micro + excluded.unknown_cost_micro
)
SELECT count(*) AS rows FROM gone
