-- The row of a model that is asked for the first time: nothing is limited, but its calls are counted
-- and its provider may close it.
INSERT INTO llm_quotas (scope, name) VALUES ('model', $1) ON CONFLICT (scope, name) DO NOTHING
