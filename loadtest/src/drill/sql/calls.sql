-- The journal of model calls. An answer is lost to its task when it never came, or came after the
-- attempt that had asked was over: a paused worker still keeps it, and another has asked anew.
SELECT c.id, c.task_id, c.state, c.state <> 'done' OR c.ended_at > a.ended_at AS lost
FROM llm_calls c
JOIN attempts a ON a.task_id = c.task_id AND a.run = c.run
