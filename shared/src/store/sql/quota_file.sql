-- What the file in force says of one name.
SELECT file FROM llm_quotas WHERE scope = $1 AND name = $2 AND file IS NOT NULL
