-- A completed task was completed by one attempt, its last; no other task has an attempt that says
-- it completed. Two such attempts would be two committed results.
SELECT format('task %s is %s at run %s and was completed by the attempts %s', t.id, t.state, t.run,
              coalesce(string_agg(a.run::text, ', ' ORDER BY a.run), 'of nobody')) AS offender,
       count(a.run) <> (t.state = 'completed')::int OR coalesce(max(a.run), t.run) <> t.run AS broken
FROM tasks t LEFT JOIN attempts a ON a.task_id = t.id AND a.outcome = 'completed'
GROUP BY t.id
