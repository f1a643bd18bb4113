-- One task with everything that is known of it, as JSON for its lists.
SELECT t.id, n.name, n.execution_key, n.task_type, t.pool, t.schedule, t.state, t.run, t.failures,
       t.crashes, t.due_at, n.created_at, t.finished_at, n.scheduled_for, n.payload, n.timeout_ms,
       n.max_retry, n.at_most_once, n.traceparent, t.published_at, t.deadline_at,
       t.cancel_requested_at, t.start_by, t.priority, t.progress_done, t.progress_failed, r.result,
       l.worker, l.error_class, l.error_message,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
            'run', a.run, 'worker', a.worker, 'started_at', a.started_at, 'ended_at', a.ended_at,
            'outcome', a.outcome, 'error_class', a.error_class, 'error_message', a.error_message,
            'delay_ms', a.delay_ms, 'traceparent', a.traceparent) ORDER BY a.run), '[]')
        FROM attempts a WHERE a.task_id = t.id) AS attempts,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
            'name', s.name, 'run', s.run, 'took_ms', s.took_ms, 'created_at', s.created_at,
            'cost_micro', (SELECT CASE WHEN count(c.cost_micro) > 0 THEN least(9223372036854775807, sum(c.cost_micro))::bigint END
                           FROM llm_calls c
                           WHERE c.task_id = s.task_id AND c.step = s.name),
            'result', s.result) ORDER BY s.created_at), '[]')
        FROM steps s WHERE s.task_id = t.id) AS steps,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
            'step', c.step, 'call_no', c.call_no, 'run', c.run, 'state', c.state, 'model', c.model,
            'response_model', c.response_model, 'endpoint', c.endpoint, 'input_tokens', c.input_tokens,
            'output_tokens', c.output_tokens, 'cached_tokens', c.cached_tokens,
            'reasoning_tokens', c.reasoning_tokens, 'usage_estimated', c.usage_estimated,
            'cost_micro', c.cost_micro, 'started_at', c.started_at, 'ended_at', c.ended_at, 'error_class', c.error_class, 'error_message', c.error_message)
            ORDER BY c.started_at), '[]')
        FROM llm_calls c WHERE c.task_id = t.id) AS llm_calls,
       (SELECT jsonb_build_object('planned_at', k.planned_at, 'outcome', k.outcome, 'decided_at', k.decided_at)
        FROM ticks k WHERE k.task_id = t.id ORDER BY k.planned_at LIMIT 1) AS tick
FROM tasks t
JOIN task_inputs n ON n.task_id = t.id
LEFT JOIN task_results r ON r.task_id = t.id
LEFT JOIN attempts l ON l.task_id = t.id AND l.run = t.run
WHERE t.id = $1
