-- Which file's schedules are in force, what tells an edit, and what a schedule says of its tasks'
-- start and place in the queue.

-- One row for ever. A tick statement shares it and an apply takes it alone: while entries change,
-- nothing ticks, and what ticks knows the entries of its revision.
CREATE TABLE schedule_file (
    only_one   boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    revision   bigint NOT NULL,
    read_at    timestamptz NOT NULL,
    applied_at timestamptz NOT NULL,
    applied_by text NOT NULL
);
COMMENT ON TABLE schedule_file IS 'the file whose schedules are in force: the one that was read last';
COMMENT ON COLUMN schedule_file.only_one IS 'one row';
COMMENT ON COLUMN schedule_file.revision IS 'counts the applied changes; a tick statement of another revision decides nothing';
COMMENT ON COLUMN schedule_file.read_at IS 'when the file in force was read; one that was read before it is not applied by a leader';
COMMENT ON COLUMN schedule_file.applied_at IS 'last change';
COMMENT ON COLUMN schedule_file.applied_by IS 'by which process or person';
INSERT INTO schedule_file (revision, read_at, applied_at, applied_by)
VALUES (0, '-infinity', '-infinity', 'nobody');

ALTER TABLE schedules
    ADD COLUMN digest bytea,
    ADD COLUMN revision bigint NOT NULL DEFAULT 0,
    ADD COLUMN formerly text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN schedules.digest IS 'SHA-256 of the spec, to tell an edit; NULL where an older binary wrote the row';
COMMENT ON COLUMN schedules.revision IS 'revision of schedule_file in which it was last applied, changed or removed';
COMMENT ON COLUMN schedules.formerly IS 'names it had before, newest first; their execution keys still count';
CREATE INDEX schedules_revision ON schedules (revision);

ALTER TABLE tasks
    ADD COLUMN start_by timestamptz,
    ADD COLUMN priority smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1 AND 1);
COMMENT ON COLUMN tasks.start_by IS 'not started by then, it never is: a claim or a sweep ends it as cancelled';
COMMENT ON COLUMN tasks.priority IS '-1 low, 0 normal, 1 high: the relay publishes high ones first, and the message says it';

-- Both hold few rows, and name no column that changes while a task lives.
CREATE INDEX tasks_start_by ON tasks (start_by) WHERE finished_at IS NULL AND start_by IS NOT NULL;
CREATE INDEX tasks_urgent ON tasks (id) WHERE finished_at IS NULL AND priority > 0;
