-- One report with its content: by number, or by name and date, or the newest by name.
SELECT id, report, date, task_id, content_type, sha256, octet_length(content) AS bytes, created_at, content
FROM artifacts
WHERE ($1::bigint IS NULL OR id = $1) AND ($2::text IS NULL OR report = $2) AND ($3::text IS NULL OR date = $3)
ORDER BY id DESC LIMIT 1
