-- Whether a claim still holds its task. The lock waits for a commit under way, whose answer was lost.
SELECT t.state = 'running' AND t.claim_token = $2 AS open
FROM tasks t WHERE t.id = $1
FOR SHARE
