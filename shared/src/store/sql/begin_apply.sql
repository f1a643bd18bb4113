-- Takes the file alone: tick statements in flight have ended, later ones wait and then find another
-- revision. Zero rows: another was faster, and what was compared is no longer in force.
SELECT belfry_now() AS now FROM schedule_file WHERE revision = $1 FOR UPDATE
