-- A stored answer to the same question of this step: it is never paid again, unless it was not what
-- was asked for and a person has replayed the task since, whose word it is that asking again is
-- worth its price. Also how many calls there were, and how many of them since then have an unknown
-- outcome or were billed for an empty answer.
WITH replayed AS (
    SELECT max(resolved_at) AS at FROM dead_letters WHERE task_id = $1 AND resolution = 'replayed'
)
SELECT (SELECT response FROM llm_calls
        WHERE task_id = $1 AND step = $2 AND request_hash = $3 AND state = 'done'
          AND (error_class IS NULL OR started_at > coalesce((SELECT at FROM replayed), '-infinity'))
        ORDER BY call_no DESC LIMIT 1) AS response,
       coalesce(max(c.call_no), 0)::int AS calls,
       (count(*) FILTER (WHERE c.state IN ('unknown', 'sent') AND c.request_hash = $3
                           AND c.started_at > coalesce(r.at, '-infinity')))::int AS unknown,
       (count(*) FILTER (WHERE c.state = 'failed' AND c.output_tokens IS NOT NULL AND c.request_hash = $3
                           AND c.started_at > coalesce(r.at, '-infinity')))::int AS wasted
FROM replayed r LEFT JOIN llm_calls c ON c.task_id = $1 AND c.step = $2
