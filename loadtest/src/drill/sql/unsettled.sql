-- What is still to be done before the account is made: tasks, copies of letters, alerts.
SELECT format('%s tasks have not ended, %s letters have no copy, %s alerts are not sent', tasks, letters, alerts) AS what,
       tasks + letters + alerts AS left
FROM (SELECT (SELECT count(*) FROM tasks WHERE finished_at IS NULL) AS tasks,
             (SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL AND published_at IS NULL) AS letters,
             (SELECT count(*) FROM alerts WHERE sent_at IS NULL) AS alerts) AS counted
