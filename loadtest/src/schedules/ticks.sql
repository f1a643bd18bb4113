-- Ticks since an instant.
SELECT count(*) AS ticks FROM ticks WHERE planned_at > $1
