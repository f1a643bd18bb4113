-- Holds a schedule's row, so that two people who ask for a run are judged one after the other.
SELECT mark FROM schedules WHERE name = $1 AND removed_at IS NULL FOR UPDATE
