-- No tick was decided in a term that never began: terms are numbered by the leadership row alone.
SELECT format('%s at %s was decided in term %s, the newest is %s', k.schedule, k.planned_at, k.epoch, l.epoch) AS offender,
       l.epoch IS NULL OR k.epoch > l.epoch AS broken
FROM ticks k LEFT JOIN leadership l ON l.name = 'producer'
