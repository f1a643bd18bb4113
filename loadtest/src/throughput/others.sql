-- Sessions of others in this database. When there are none, all have told what they did.
SELECT count(*) AS others FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
