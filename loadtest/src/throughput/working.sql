-- Whether anything is left to do, by the index of the living; cheap enough to be asked all the time.
SELECT EXISTS (SELECT FROM tasks WHERE finished_at IS NULL) AS working, belfry_now() AS now
