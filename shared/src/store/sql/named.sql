-- Tasks that were just committed, to be published at once. Continued by unpublished.sql.
WITH wanted AS (SELECT unnest($1::uuid[]) AS id)
