-- Begins episodes of one kind; answers the new ones. One that is open already, by this or another
-- producer's word, only learns the newest; one whose evidence is not newer than what is known begins
-- nothing.
WITH clock AS MATERIALIZED (SELECT belfry_now() AS now),
begun AS (
    INSERT INTO episodes AS e (kind, subject, name, detail, began_at, until, told_at)
    SELECT $1, i.subject, i.name, i.detail, c.now, coalesce(i.until, c.now), c.now
    FROM unnest($2::text[], $3::text[], $4::text[], $5::timestamptz[]) AS i (subject, name, detail, until),
         clock c
    WHERE NOT EXISTS (SELECT FROM episodes o
                      WHERE o.kind = $1 AND o.subject = i.subject AND o.until >= coalesce(i.until, c.now))
    ORDER BY i.subject
    ON CONFLICT (kind, subject) WHERE ended_at IS NULL
    DO UPDATE SET detail = excluded.detail, until = greatest(e.until, excluded.until)
    RETURNING e.kind, e.name, e.detail, e.xmax = 0 AS fresh
)
SELECT kind, name, detail FROM begun WHERE fresh ORDER BY name
