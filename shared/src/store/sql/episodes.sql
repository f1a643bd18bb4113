-- Episodes that are not over, and incarnations that have taken a lost one's place already.
SELECT id, kind, subject, name, until, ended_by, true AS open FROM episodes WHERE ended_at IS NULL
UNION ALL
SELECT id, kind, subject, name, until, ended_by, false FROM episodes
WHERE ended_by IS NOT NULL AND ended_at > belfry_now() - make_interval(secs => $1::bigint / 1000.0)
ORDER BY id
