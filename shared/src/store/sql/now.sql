-- The only clock.
SELECT belfry_now() AS now
