-- Continues rescue.sql, deadline.sql and audit.sql: each victim becomes queued, due now and
-- unpublished; or dead at the crash limit ($1); or cancelled where that was asked. One crash is
-- added; where the attempt kept a step, it is the first again: what gets on is no killer, and work in
-- many steps must outlive more deaths than the limit. (A step that only an old attempt kept, or that
-- is kept anew, is no progress: keep_step.sql leaves its token.) Failures stay. $2 is the attempt's
-- outcome, $3 what people read.
, counted AS (
    SELECT v.id, v.claim_token,
           CASE WHEN EXISTS (SELECT FROM steps s WHERE s.task_id = v.id AND s.token = v.claim_token)
                THEN 1 END AS crashes
    FROM victims v
),
back AS (
    UPDATE tasks t
    SET crashes = coalesce(v.crashes, t.crashes + 1),
        state = CASE
            WHEN t.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN n.at_most_once OR coalesce(v.crashes, t.crashes + 1) >= $1::int THEN 'dead'
            ELSE 'queued' END,
        finished_at = CASE
            WHEN t.cancel_requested_at IS NOT NULL OR n.at_most_once
                 OR coalesce(v.crashes, t.crashes + 1) >= $1::int
                THEN belfry_now() END,
        due_at = belfry_now(), published_at = NULL, claim_token = NULL, incarnation = NULL,
        deadline_at = NULL
    FROM counted v JOIN task_inputs n ON n.task_id = v.id
    WHERE t.id = v.id AND t.state = 'running' AND t.claim_token = v.claim_token
    RETURNING t.id, t.run, t.state, t.crashes, n.at_most_once, n.name
),
ended AS (
    UPDATE attempts a
    SET ended_at = belfry_now(), outcome = $2::text,
        error_class = CASE WHEN b.state = 'dead' AND b.at_most_once THEN 'unknown_outcome' ELSE 'crashed' END,
        error_message = $3::text
    FROM back b
    WHERE a.task_id = b.id AND a.run = b.run AND a.ended_at IS NULL
),
-- What was asked of a model and not answered may have been billed.
asked AS (
    UPDATE llm_calls c
    SET state = 'unknown', ended_at = belfry_now(), error_class = 'unknown_outcome',
        error_message = 'the attempt ended before the answer was stored; the call may have been billed'
    FROM back b WHERE c.task_id = b.id AND c.state = 'sent'
),
letters AS (
    INSERT INTO dead_letters AS l (task_id, run, error_class, error_message, created_at)
    SELECT b.id, b.run, CASE WHEN b.at_most_once THEN 'unknown_outcome' ELSE 'crashed' END,
           format('%s (crash %s)', $3::text, b.crashes), belfry_now()
    FROM back b WHERE b.state = 'dead'
    ON CONFLICT (task_id, run) DO NOTHING
    RETURNING l.id, l.task_id, l.error_class, l.error_message
),
told AS (
    INSERT INTO alerts (kind, dead_letter_id, text, created_at, next_try_at)
    SELECT 'dead', l.id,
           format('Dead letter %s: task %s of %s gave up after attempt %s (%s: %s)', l.id, l.task_id,
                  b.name, b.run, l.error_class, l.error_message),
           belfry_now(), belfry_now()
    FROM letters l JOIN back b ON b.id = l.task_id
    ON CONFLICT (dead_letter_id, seq) DO NOTHING
)
SELECT id, state FROM back
