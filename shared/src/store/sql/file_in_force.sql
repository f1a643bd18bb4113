-- Which file's schedules are in force, and the present.
SELECT revision, read_at, applied_at, applied_by, belfry_now() AS now FROM schedule_file
