-- A stored answer to the same question of this step: it is never paid again. Also how many calls
-- there were, and how many of them have an unknown outcome.
SELECT (SELECT response FROM llm_calls
        WHERE task_id = $1 AND step = $2 AND request_hash = $3 AND state = 'done'
        ORDER BY call_no DESC LIMIT 1) AS response,
       coalesce(max(call_no), 0)::int AS calls,
       (count(*) FILTER (WHERE state IN ('unknown', 'sent') AND request_hash = $3))::int AS unknown
FROM llm_calls WHERE task_id = $1 AND step = $2
