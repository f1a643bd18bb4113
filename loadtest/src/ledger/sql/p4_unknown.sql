-- Calls that may have been billed without, or beside, the answer that was used. Never a violation:
-- they are the visible price of a crash between sending and storing.
SELECT format('call %s of step %s of task %s', c.call_no, c.step, c.task_id) AS offender, false AS broken
FROM llm_calls c
WHERE c.state = 'unknown'
   OR c.state = 'done' AND EXISTS (
       SELECT FROM llm_calls e
       WHERE e.task_id = c.task_id AND e.step = c.step AND e.request_hash = c.request_hash
         AND e.state = 'done' AND e.call_no < c.call_no)
