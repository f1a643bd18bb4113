-- Every pause by hand counts until nothing in it is left to decide, and a renamed schedule knows its heir.

ALTER TABLE schedules
    ADD COLUMN pauses tstzmultirange NOT NULL DEFAULT '{}',
    ADD COLUMN renamed_to text;
COMMENT ON COLUMN schedules.pauses IS 'pauses by hand that are over, behind the mark: instants in them that nobody has decided yet are paused ones';
COMMENT ON COLUMN schedules.renamed_to IS 'the schedule that went on for it when it was removed; NULL where none did, and while it is in force';

UPDATE schedules SET pauses = tstzmultirange(last_pause) WHERE upper(last_pause) > mark;
ALTER TABLE schedules DROP COLUMN last_pause;

-- The one that took its name last; a later one has it from that.
UPDATE schedules s
SET renamed_to = (
    SELECT h.name FROM schedules h WHERE s.name = ANY (h.formerly) AND h.name <> s.name
    ORDER BY h.formerly[1] = s.name DESC, h.removed_at IS NULL DESC, h.applied_at DESC LIMIT 1
)
WHERE s.removed_at IS NOT NULL;
