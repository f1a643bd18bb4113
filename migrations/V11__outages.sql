-- What becomes of planned instants while nobody is there: to decide them, or to run them.

ALTER TABLE schedules ADD COLUMN last_pause tstzrange;
COMMENT ON COLUMN schedules.last_pause IS 'the last pause by hand that is over: its instants that nobody has decided yet are paused ones';
COMMENT ON COLUMN ticks.first_at IS 'first instant of a span of missed or paused ones';

ALTER TABLE ticks ADD COLUMN not_started_at timestamptz;
COMMENT ON COLUMN ticks.not_started_at IS 'when its task was ended, not having started by its deadline';
-- As few as the missed ones, and looked for as often.
CREATE INDEX ticks_not_started ON ticks (not_started_at) WHERE not_started_at IS NOT NULL;
