-- Schedules as applied from belfry.yaml, and every planned instant with what became of it.

CREATE TABLE schedules (
    name       text PRIMARY KEY,
    spec       jsonb NOT NULL,
    cron       text NOT NULL,
    timezone   text NOT NULL,
    task_type  text NOT NULL,
    mark       timestamptz NOT NULL,
    applied_at timestamptz NOT NULL,
    paused_at  timestamptz,
    paused_by  text,
    removed_at timestamptz
) WITH (fillfactor = 70);
COMMENT ON TABLE schedules IS 'schedules by name with their high-water mark; removed ones keep their rows';
COMMENT ON COLUMN schedules.name IS 'unique name';
COMMENT ON COLUMN schedules.spec IS 'the whole entry, to tell an edit from a restart';
COMMENT ON COLUMN schedules.cron IS 'cron line';
COMMENT ON COLUMN schedules.timezone IS 'IANA zone';
COMMENT ON COLUMN schedules.task_type IS 'what runs';
COMMENT ON COLUMN schedules.mark IS 'every planned instant up to here has its tick row';
COMMENT ON COLUMN schedules.applied_at IS 'last change of spec';
COMMENT ON COLUMN schedules.paused_at IS 'paused by hand since';
COMMENT ON COLUMN schedules.paused_by IS 'by whom';
COMMENT ON COLUMN schedules.removed_at IS 'no longer in the file since';

CREATE TABLE ticks (
    schedule   text NOT NULL,
    planned_at timestamptz NOT NULL,
    outcome    text NOT NULL CHECK (outcome IN
        ('enqueued', 'deduplicated', 'skipped_overlap', 'paused', 'missed')),
    task_id    uuid,
    decided_at timestamptz NOT NULL,
    epoch      bigint NOT NULL,
    first_at   timestamptz,
    count      bigint NOT NULL DEFAULT 1 CHECK (count > 0),
    PRIMARY KEY (schedule, planned_at),
    CONSTRAINT ticks_task CHECK ((outcome IN ('enqueued', 'deduplicated')) = (task_id IS NOT NULL)),
    CONSTRAINT ticks_span CHECK ((count > 1) <= (first_at IS NOT NULL))
);
COMMENT ON TABLE ticks IS 'one row per planned instant, whoever decided it';
COMMENT ON COLUMN ticks.schedule IS 'the schedule';
COMMENT ON COLUMN ticks.planned_at IS 'the UTC instant; the last one of a span';
COMMENT ON COLUMN ticks.outcome IS 'enqueued, deduplicated, skipped_overlap, paused, missed';
COMMENT ON COLUMN ticks.task_id IS 'the task it made, or found under its key';
COMMENT ON COLUMN ticks.decided_at IS 'when';
COMMENT ON COLUMN ticks.epoch IS 'term of the leader that decided';
COMMENT ON COLUMN ticks.first_at IS 'first instant of a span of missed ones';
COMMENT ON COLUMN ticks.count IS 'instants in the span; 1 otherwise';
