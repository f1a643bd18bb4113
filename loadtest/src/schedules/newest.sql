-- The newest decision: a producer has begun to tick.
SELECT max(decided_at) AS decided_at FROM ticks
