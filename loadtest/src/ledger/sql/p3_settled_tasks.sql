-- After the storm: every task has ended, but for those that are due in more than an hour.
SELECT format('task %s is %s', t.id, t.state) AS offender,
       t.finished_at IS NULL AND t.state <> 'scheduled' AS broken
FROM tasks t
