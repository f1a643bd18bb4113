-- Which entries of a scope ($3) an apply of these would change: edited, new and lifted ones.
SELECT coalesce(i.name, q.name) AS name
FROM unnest($1::text[], $2::jsonb[]) AS i (name, file)
FULL JOIN (SELECT name, file FROM llm_quotas WHERE scope = $3 AND file IS NOT NULL) q ON q.name = i.name
WHERE q.file IS DISTINCT FROM i.file
ORDER BY 1
