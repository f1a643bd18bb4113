-- Does the server answer?
SELECT 1
