-- Who leads, for people.
SELECT label, epoch, since, lease_until, lease_until > belfry_now() AS alive
FROM leadership WHERE name = 'producer'
