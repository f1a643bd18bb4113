-- Dead letters, what people did with them, and the alerts that tell of them.

CREATE TABLE dead_letters (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id       uuid,
    run           integer,
    error_class   text NOT NULL,
    error_message text NOT NULL,
    body          text,
    created_at    timestamptz NOT NULL,
    published_at  timestamptz,
    claimed_by    text,
    claimed_at    timestamptz,
    resolved_at   timestamptz,
    resolved_by   text,
    resolution    text CHECK (resolution IN ('replayed', 'discarded')),
    UNIQUE (task_id, run),
    CONSTRAINT dead_letters_resolved CHECK ((resolved_at IS NULL) = (resolution IS NULL)),
    CONSTRAINT dead_letters_claimed CHECK ((claimed_at IS NULL) = (claimed_by IS NULL))
);
COMMENT ON TABLE dead_letters IS 'tasks given up, until somebody replays or discards them; belfry.dead mirrors the open ones';
COMMENT ON COLUMN dead_letters.id IS 'number people use';
COMMENT ON COLUMN dead_letters.task_id IS 'the dead task; NULL for a message that could not be read';
COMMENT ON COLUMN dead_letters.run IS 'the attempt that ended it; 0 where it never ran';
COMMENT ON COLUMN dead_letters.error_class IS 'class of the last failure';
COMMENT ON COLUMN dead_letters.error_message IS 'message of the last failure';
COMMENT ON COLUMN dead_letters.body IS 'start of an unreadable message';
COMMENT ON COLUMN dead_letters.created_at IS 'when it died';
COMMENT ON COLUMN dead_letters.published_at IS 'when its copy in the dead queue was confirmed; NULL asks the relay for one';
COMMENT ON COLUMN dead_letters.claimed_by IS 'who looks after it';
COMMENT ON COLUMN dead_letters.claimed_at IS 'since when';
COMMENT ON COLUMN dead_letters.resolved_at IS 'when it was closed';
COMMENT ON COLUMN dead_letters.resolved_by IS 'by whom';
COMMENT ON COLUMN dead_letters.resolution IS 'replayed or discarded';
CREATE INDEX dead_letters_open ON dead_letters (id) WHERE resolved_at IS NULL;

CREATE TABLE alerts (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind           text NOT NULL CHECK (kind IN ('dead')),
    dead_letter_id bigint REFERENCES dead_letters (id) ON DELETE CASCADE,
    seq            integer NOT NULL DEFAULT 1,
    text           text NOT NULL,
    created_at     timestamptz NOT NULL,
    next_try_at    timestamptz NOT NULL,
    tries          integer NOT NULL DEFAULT 0,
    sent_at        timestamptz,
    last_error     text,
    UNIQUE (dead_letter_id, seq)
);
COMMENT ON TABLE alerts IS 'one row per alert; the webhook gets each at least once';
COMMENT ON COLUMN alerts.id IS 'also sent as the webhook''s id';
COMMENT ON COLUMN alerts.kind IS 'dead: a task was given up';
COMMENT ON COLUMN alerts.dead_letter_id IS 'what it tells of';
COMMENT ON COLUMN alerts.seq IS 'first, second … alert of the same letter';
COMMENT ON COLUMN alerts.text IS 'what the person reads';
COMMENT ON COLUMN alerts.created_at IS 'written with the death';
COMMENT ON COLUMN alerts.next_try_at IS 'not posted before this; also holds off other senders while one posts';
COMMENT ON COLUMN alerts.tries IS 'posts so far';
COMMENT ON COLUMN alerts.sent_at IS 'when the webhook accepted it, or when it was kept as a row because there is none';
COMMENT ON COLUMN alerts.last_error IS 'why the last post failed';
CREATE INDEX alerts_unsent ON alerts (next_try_at) WHERE sent_at IS NULL;
