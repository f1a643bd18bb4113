-- What is finished leaves after its time, and the workers say which corner of the broker they use.

-- Pruning finds what is over by these; the rest it finds by task_inputs_created and primary keys.
CREATE INDEX execution_keys_expiry ON execution_keys (expires_at);
CREATE INDEX dead_letters_resolved ON dead_letters (resolved_at) WHERE resolved_at IS NOT NULL;

ALTER TABLE workers ADD COLUMN place text;
COMMENT ON COLUMN workers.place IS 'prefix and vhost on the broker: two of them at once are two installations that share a database by mistake; NULL from a binary that did not say';
