-- Tells a leader whether the entries that it ticks are still those in force.
SELECT revision FROM schedule_file
