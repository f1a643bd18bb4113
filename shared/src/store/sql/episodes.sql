-- Episodes that are not over, and incarnations that have taken a lost one's place already.
SELECT id, kind, subject, name, detail, began_at, until, ended_by, ended_at IS NULL AS open
FROM episodes
WHERE ended_at IS NULL
   OR ended_by IS NOT NULL AND ended_at > belfry_now() - make_interval(secs => $1::bigint / 1000.0)
ORDER BY id
