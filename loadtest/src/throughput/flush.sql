-- Our own session tells its transactions at the end of this one, instead of seconds later.
SELECT pg_stat_force_next_flush()
