-- What a leader takes over after an apply is read page by page, however many entries it touched.

CREATE INDEX schedules_changes ON schedules (revision, name);
DROP INDEX schedules_revision;
