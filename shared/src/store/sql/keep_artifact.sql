-- Keeps a report, by the holder of the claim only, one per report and date. The same task may write
-- it again (another attempt); another task is told whose it is.
WITH mine AS (
    SELECT t.id FROM tasks t
    WHERE t.id = $1 AND t.state = 'running' AND t.claim_token = $2
    FOR SHARE
)
INSERT INTO artifacts AS a (report, date, task_id, content_type, sha256, content, created_at)
SELECT $3, $4, m.id, $5, $6, $7, belfry_now() FROM mine m
ON CONFLICT (report, date) DO UPDATE
SET content_type = CASE WHEN a.task_id = excluded.task_id THEN excluded.content_type ELSE a.content_type END,
    sha256 = CASE WHEN a.task_id = excluded.task_id THEN excluded.sha256 ELSE a.sha256 END,
    content = CASE WHEN a.task_id = excluded.task_id THEN excluded.content ELSE a.content END
RETURNING a.id, a.task_id
