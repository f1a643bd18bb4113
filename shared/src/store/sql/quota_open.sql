-- Opens a model for everybody, at an operator's word. Zero rows: it is not closed.
UPDATE llm_quotas q
SET closed_at = NULL, closed_until = NULL, closed_endpoint = NULL, closed_reason = NULL, probe = NULL,
    untried_until = 'infinity', turn_at = '-infinity'
WHERE q.scope = 'model' AND q.name = $1 AND q.closed_until IS NOT NULL
RETURNING q.name
