-- A question whose answer is stored is not asked again: no answered call of a step began after an
-- answer to the same question was there. (Two that overlap are a call of unknown outcome and its
-- successor; they are counted among the unknown ones. An answer that was not what was asked for,
-- and is told so by its class, may be asked for again after a replay.)
SELECT format('call %s of step %s of task %s was paid again as call %s', first.call_no, c.step, c.task_id, c.call_no) AS offender,
       first.call_no IS NOT NULL AS broken
FROM llm_calls c
LEFT JOIN LATERAL (
    SELECT e.call_no FROM llm_calls e
    WHERE e.task_id = c.task_id AND e.step = c.step AND e.request_hash = c.request_hash
      AND e.state = 'done' AND e.id <> c.id AND e.ended_at <= c.started_at
      AND NOT (e.error_class IS NOT NULL AND EXISTS (
          SELECT FROM dead_letters d
          WHERE d.task_id = c.task_id AND d.resolution = 'replayed'
            AND d.resolved_at BETWEEN e.ended_at AND c.started_at))
    ORDER BY e.call_no LIMIT 1
) first ON true
WHERE c.state = 'done'
