-- Puts entries in force: new ones, edited ones, ones that come back. None fires for times before now
-- ($7); what was due under an old entry was ticked before, in this transaction. Answers those whose
-- mark is later than that: the clock went back, and what they had decided stays decided.
WITH put AS (
    INSERT INTO schedules AS s
        (name, spec, cron, timezone, task_type, digest, mark, applied_at, revision)
    SELECT i.name, i.spec::jsonb, i.cron, i.timezone, i.task_type, i.digest, $7, $7, $8
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[])
        AS i (name, spec, cron, timezone, task_type, digest)
    ON CONFLICT (name) DO UPDATE
    SET spec = excluded.spec, cron = excluded.cron, timezone = excluded.timezone,
        task_type = excluded.task_type, digest = excluded.digest, removed_at = NULL,
        renamed_to = NULL, mark = greatest(s.mark, excluded.mark),
        applied_at = excluded.applied_at, revision = excluded.revision
    RETURNING s.name, s.mark
)
SELECT name, mark FROM put WHERE mark > $7
