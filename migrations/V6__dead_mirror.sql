-- The dead queue mirrors the open letters: who has closed a letter must be able to say that its copy
-- is still there.

ALTER TABLE dead_letters
    ADD COLUMN removed_at timestamptz,
    ADD CONSTRAINT dead_letters_removed CHECK (removed_at IS NULL OR resolved_at IS NOT NULL);
COMMENT ON COLUMN dead_letters.removed_at IS 'when the dead queue was walked without its copy, after it was resolved; NULL asks for a walk';

-- Small for ever: letters leave it with the next walk.
CREATE INDEX dead_letters_stale ON dead_letters (id)
    WHERE resolved_at IS NOT NULL AND published_at IS NOT NULL AND removed_at IS NULL;
