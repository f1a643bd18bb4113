-- Ends episodes; answers those that this statement ended and that have a sentence to tell: without
-- one ($2 NULL) an episode is only forgotten.
WITH over AS (
    UPDATE episodes e SET ended_at = belfry_now(), ended_by = i.ended_by
    FROM unnest($1::bigint[], $2::text[], $3::text[]) AS i (id, detail, ended_by)
    WHERE e.id = i.id AND e.ended_at IS NULL
    RETURNING e.kind, e.name, i.detail
)
SELECT kind, name, detail FROM over WHERE detail IS NOT NULL ORDER BY kind, name
