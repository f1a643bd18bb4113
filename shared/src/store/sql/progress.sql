-- Progress, by the holder of the claim only.
UPDATE tasks SET progress_done = $3, progress_failed = $4
WHERE id = $1 AND state = 'running' AND claim_token = $2
RETURNING id
