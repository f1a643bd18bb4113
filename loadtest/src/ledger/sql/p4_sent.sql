-- No call is in flight for a task that has ended: an answer that never came must be a visible
-- unknown, since it may have been billed.
SELECT format('call %s of step %s of task %s is still sent, and the task is %s', c.call_no, c.step, c.task_id,
              coalesce(t.state, 'gone')) AS offender,
       t.id IS NULL OR t.finished_at IS NOT NULL AS broken
FROM llm_calls c LEFT JOIN tasks t ON t.id = c.task_id
WHERE c.state = 'sent'
