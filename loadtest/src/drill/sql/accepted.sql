-- Nothing accepted is lost: what was committed has a row.
SELECT format('task %s was accepted and is not there', told.id) AS offender, t.id IS NULL AS broken
FROM unnest($1::uuid[]) AS told (id) LEFT JOIN tasks t ON t.id = told.id
