-- Whole milliseconds until the lead is free, rounded up: zero is free. Takes no lock.
SELECT greatest(0, ceil(extract(epoch FROM l.lease_until - belfry_now()) * 1000))::bigint AS left_ms
FROM leadership l WHERE l.name = 'producer'
