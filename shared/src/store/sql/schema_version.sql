-- What was applied last.
SELECT max(version)::int AS version FROM refinery_schema_history
