-- Reports, newest first; of one report, if named.
SELECT id, report, date, task_id, content_type, sha256, octet_length(content) AS bytes, created_at
FROM artifacts
WHERE ($1::text IS NULL OR report = $1)
ORDER BY id DESC LIMIT $2
