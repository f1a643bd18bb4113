-- One migration at a time; released with the session.
SELECT pg_advisory_lock($1)
