-- Which of these letters are closed. An unknown one is not: nobody knows what its copy is for.
SELECT id FROM dead_letters WHERE id = ANY ($1::bigint[]) AND resolved_at IS NOT NULL
