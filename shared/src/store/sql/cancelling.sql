-- Which of a worker's running tasks somebody wants to end.
SELECT t.id, t.claim_token FROM tasks t
WHERE t.id = ANY ($1::uuid[]) AND t.state = 'running' AND t.cancel_requested_at IS NOT NULL
