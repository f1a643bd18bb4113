-- How many dead letters and alerts are open.
SELECT (SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL) AS dead_letters,
       (SELECT count(*) FROM alerts WHERE sent_at IS NULL AND kind <> 'test') AS unsent_alerts
