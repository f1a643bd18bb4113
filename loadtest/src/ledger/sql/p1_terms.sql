-- No tick was decided in a term that never began: terms are numbered by the leadership row alone. What
-- an apply by hand decided before the first has number 0.
SELECT format('%s at %s was decided in term %s, the newest is %s', k.schedule, k.planned_at, k.epoch, l.epoch) AS offender,
       k.epoch > coalesce(l.epoch, 0) AS broken
FROM ticks k LEFT JOIN leadership l ON l.name = 'producer'
