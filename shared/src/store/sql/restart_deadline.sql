-- A claimed task had to wait for its turn in its worker: its deadline runs from now ($3: the grace in
-- milliseconds). By the holder of the claim only.
UPDATE tasks t
SET deadline_at = belfry_now() + make_interval(secs => (n.timeout_ms + $3::bigint) / 1000.0)
FROM task_inputs n
WHERE t.id = $1 AND n.task_id = t.id AND t.state = 'running' AND t.claim_token = $2
RETURNING t.id
