-- A running task has one open attempt, made by the claim that it names; every other task has none.
-- An open attempt beside it would be a second worker that believes the task is its own.
SELECT format('task %s is %s and has %s open attempts, %s of them its claim', t.id, t.state, count(a.run),
              count(a.run) FILTER (WHERE a.token = t.claim_token)) AS offender,
       count(a.run) <> (t.state = 'running')::int
           OR count(a.run) FILTER (WHERE a.token = t.claim_token AND a.run = t.run
                                     AND a.incarnation = t.incarnation) <> (t.state = 'running')::int AS broken
FROM tasks t LEFT JOIN attempts a ON a.task_id = t.id AND a.ended_at IS NULL
GROUP BY t.id
