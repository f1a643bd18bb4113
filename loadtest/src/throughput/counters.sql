-- What the server has done so far: transactions of this database, and bytes of the log. Sessions
-- tell their transactions seconds late, and at their end.
SELECT d.xact_commit AS commits, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS wal_bytes
FROM pg_stat_database d WHERE d.datname = current_database()
