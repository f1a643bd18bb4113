-- Who a source's connection is: a superuser's powers are put down before each query, which takes a
-- role that PostgreSQL has since 14.
SELECT current_setting('is_superuser') = 'on' AS superuser,
       current_setting('server_version_num')::int >= 140000 AS has_reader
