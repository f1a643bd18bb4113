-- Letters without a task: bodies that nobody could read, and messages that the broker moved itself.
SELECT count(DISTINCT body) FILTER (WHERE error_class = 'invalid') AS kept,
       count(*) FILTER (WHERE error_class <> 'invalid') AS moved
FROM dead_letters WHERE task_id IS NULL
