-- What people ask of schedules beside their ticks, and what alerts tell of beside deaths.

-- A tick row stands for a planned instant and is decided once, by the leader. A run by hand is no
-- tick: it may stand for an instant that was never planned, or for one whose row says `missed`.
CREATE TABLE by_hand (
    task_id       uuid PRIMARY KEY,
    schedule      text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('trigger', 'backfill')),
    scheduled_for timestamptz NOT NULL,
    forced        boolean NOT NULL,
    asked_by      text NOT NULL,
    asked_at      timestamptz NOT NULL
);
COMMENT ON TABLE by_hand IS 'tasks of schedules that a person asked for: each task of a schedule has its tick or its row here';
COMMENT ON COLUMN by_hand.task_id IS 'the task it made';
COMMENT ON COLUMN by_hand.schedule IS 'the schedule';
COMMENT ON COLUMN by_hand.kind IS 'trigger: one run now; backfill: a planned instant of the past';
COMMENT ON COLUMN by_hand.scheduled_for IS 'the instant that its templates were rendered for';
COMMENT ON COLUMN by_hand.forced IS 'beside an unfinished run, although the overlap policy said no';
COMMENT ON COLUMN by_hand.asked_by IS 'by whom';
COMMENT ON COLUMN by_hand.asked_at IS 'when';
CREATE INDEX by_hand_schedule ON by_hand (schedule, asked_at);

-- Missed instants are few, and looked for every few seconds.
CREATE INDEX ticks_missed ON ticks (decided_at) WHERE outcome = 'missed';

CREATE TABLE episodes (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind     text NOT NULL CHECK (kind IN
        ('no_next_tick', 'behind', 'missed', 'lost_producer', 'lost_worker')),
    subject  text NOT NULL,
    name     text NOT NULL,
    detail   text NOT NULL,
    began_at timestamptz NOT NULL,
    until    timestamptz NOT NULL,
    told_at  timestamptz NOT NULL,
    ended_at timestamptz,
    ended_by text
) WITH (fillfactor = 70);
COMMENT ON TABLE episodes IS 'troubles with a beginning and an end: each is told once when it begins and once when it is over';
COMMENT ON COLUMN episodes.id IS 'its number';
COMMENT ON COLUMN episodes.kind IS 'no_next_tick, behind, missed: of a schedule; lost_producer, lost_worker: of a process that vanished';
COMMENT ON COLUMN episodes.subject IS 'whose trouble: a schedule''s name, or an incarnation';
COMMENT ON COLUMN episodes.name IS 'what people call it: the schedule''s name, or the process''s label';
COMMENT ON COLUMN episodes.detail IS 'a sentence about it';
COMMENT ON COLUMN episodes.began_at IS 'when it was seen first';
COMMENT ON COLUMN episodes.until IS 'newest evidence: what is not newer begins no second episode';
COMMENT ON COLUMN episodes.told_at IS 'last alert about it';
COMMENT ON COLUMN episodes.ended_at IS 'when it was over';
COMMENT ON COLUMN episodes.ended_by IS 'incarnation that took a lost one''s place';
CREATE UNIQUE INDEX episodes_open ON episodes (kind, subject) WHERE ended_at IS NULL;
CREATE INDEX episodes_subject ON episodes (kind, subject, until);
CREATE INDEX episodes_replaced ON episodes (ended_at) WHERE ended_by IS NOT NULL;

ALTER TABLE alerts DROP CONSTRAINT alerts_kind_check;
ALTER TABLE alerts
    ADD CONSTRAINT alerts_kind_known CHECK (kind IN
        ('dead', 'no_next_tick', 'behind', 'missed', 'lost_producer', 'lost_worker', 'test')),
    ADD COLUMN stage text NOT NULL DEFAULT 'begun' CHECK (stage IN ('begun', 'again', 'over')),
    ADD COLUMN subjects text[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT alerts_dead_letter CHECK (kind = 'dead' OR dead_letter_id IS NULL);
COMMENT ON COLUMN alerts.kind IS 'dead: a task was given up; test: somebody tries the webhook; else the kind of its episodes';
COMMENT ON COLUMN alerts.stage IS 'begun: news; again: it lasts; over: it has ended';
COMMENT ON COLUMN alerts.subjects IS 'names of schedules or labels of processes, the first twenty; empty for dead letters';
UPDATE alerts SET stage = 'again' WHERE seq > 1;
