-- Does the server answer, and does it take writes? On a standby it does not either.
SELECT current_setting('transaction_read_only') = 'on' AS read_only
