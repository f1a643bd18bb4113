-- A tick whose key belongs to work of another kind is told from an ordinary repeat.

ALTER TABLE ticks
    ADD COLUMN other_payload boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT ticks_other_payload CHECK (outcome = 'deduplicated' OR NOT other_payload);
COMMENT ON COLUMN ticks.other_payload IS 'deduplicated by a task whose payload is another one: what this tick wanted has not run';
