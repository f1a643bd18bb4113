-- One process after the other looks for another installation and registers; released with the
-- transaction.
SELECT pg_advisory_xact_lock($1)
