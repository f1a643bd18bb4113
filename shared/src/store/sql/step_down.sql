-- Gives the lead away at once, so that a standby need not wait for the lease.
UPDATE leadership SET lease_until = belfry_now() WHERE name = 'producer' AND token = $1
RETURNING epoch
