-- Every accepted task ended as it was told to: with its result, or dead of the class it asked for. One
-- that must not rerun may also be dead of an unknown outcome.
SELECT format('task %s (%s) must end as %s and is %s', told.id, i.payload, told.end, coalesce(t.state, 'gone')
              || coalesce(' of ' || l.error_class || ': ' || l.error_message, '')) AS offender,
       NOT CASE told.end
           WHEN 'completed' THEN t.state = 'completed'
           WHEN 'cancelled' THEN t.state = 'cancelled'
           WHEN 'once' THEN t.state = 'completed' OR t.state = 'dead' AND l.error_class = 'unknown_outcome'
           ELSE t.state = 'dead' AND l.error_class = told.end
       END AS broken
FROM unnest($1::uuid[], $2::text[]) AS told (id, "end")
LEFT JOIN tasks t ON t.id = told.id
LEFT JOIN task_inputs i ON i.task_id = told.id
LEFT JOIN LATERAL (
    SELECT error_class, error_message FROM dead_letters WHERE task_id = told.id ORDER BY id DESC LIMIT 1
) l ON true
