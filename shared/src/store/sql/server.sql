-- What the server is. reset_val: our own SET hides what other sessions of this user get. The
-- clock is the server's own and not belfry_now(), which an empty database does not have.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS number,
       (SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_isolation') AS isolation,
       current_setting('synchronous_commit') AS synchronous_commit,
       pg_is_in_recovery() AS standby,
       current_setting('transaction_read_only')::boolean AS read_only,
       clock_timestamp() AS now
