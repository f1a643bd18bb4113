-- Admits a call and writes it, or says why not and when to come back: all of its limits or none. The
-- holder of the claim alone is admitted; zero rows: fenced. A repeat with the same id, after a lost
-- answer, is admitted already and counts no more. The quota rows (the model's, and the
-- schedule's where it has a budget) are locked in one order and read as they are under the lock: a
-- value read before the lock would let every racer spend the same rest. The clock is read after it.
WITH mine AS MATERIALIZED (
    SELECT t.id, t.run, t.schedule, n.task_type
    FROM tasks t JOIN task_inputs n ON n.task_id = t.id
    WHERE t.id = $2 AND t.state = 'running' AND t.claim_token = $3
    FOR SHARE OF t
),
locked AS MATERIALIZED (
    SELECT q.* FROM mine m JOIN llm_quotas q ON (q.scope, q.name) IN (('model', $8), ('schedule', m.schedule))
    ORDER BY q.scope, q.name
    FOR UPDATE OF q
),
clock AS MATERIALIZED (
    SELECT belfry_now() AS now, coalesce(bool_or(l.scope = 'model'), false) AS known FROM locked l
),
-- What each limit costs this call, in seconds of its rate.
priced AS (
    SELECT l.*, c.now, greatest(l.day, (c.now AT TIME ZONE l.timezone)::date) AS today,
           60.0 / l.requests_per_minute AS request_step, 60.0 / l.requests_per_minute * l.burst AS request_room,
           60.0 * $10::bigint / l.tokens_per_minute AS token_step,
           60.0 / l.tokens_per_minute * greatest(l.token_burst, $10::bigint) AS token_room,
           l.closed_until IS NOT NULL AND l.closed_endpoint = $7 AS closed
    FROM locked l, clock c
),
-- Counters as numeric: a full one says no, it does not fail. No honest sum of calls owes more than a minute or a burst: more is a step of the clock.
owed AS (
    SELECT p.*,
           greatest(p.now, least(p.request_tat, p.now + make_interval(secs => greatest(60, p.request_room)))) AS requests_over,
           greatest(p.now, least(p.token_tat, p.now + make_interval(secs => greatest(60, p.token_room)))) AS tokens_over,
           CASE WHEN p.day = p.today THEN p.used_tokens::numeric ELSE 0 END AS tokens_used,
           CASE WHEN p.day = p.today THEN p.held_tokens::numeric ELSE 0 END AS tokens_held,
           CASE WHEN p.day = p.today THEN p.used_cost_micro::numeric ELSE 0 END AS cost_used,
           CASE WHEN p.day = p.today THEN p.held_cost_micro::numeric ELSE 0 END AS cost_held,
           -- One of the calls under way ends about then.
           p.now + make_interval(secs => CASE WHEN p.latency_ms = 0 THEN 1 ELSE greatest(0.1, p.latency_ms / 1000) END) AS soon,
           ((p.today + 1)::timestamp AT TIME ZONE p.timezone) AS tomorrow
    FROM priced p
),
-- Each limit that stands in the way, how grave that is, and until when.
hurdles AS (
    SELECT o.scope, o.name, h.grave, h.reason, h.until
    FROM owed o
    CROSS JOIN LATERAL (VALUES
        (4, 'unpriced', o.daily_cost_micro IS NOT NULL AND $11::bigint IS NULL, o.now),
        (4, 'too_large', $10::bigint > least(o.tokens_per_minute, o.daily_tokens) OR $11::bigint > o.daily_cost_micro, o.now),
        (3, 'daily_tokens', o.tokens_used + $10::bigint > o.daily_tokens, o.tomorrow),
        (3, 'daily_cost', o.cost_used + $11::bigint > o.daily_cost_micro, o.tomorrow),
        -- Not before the provider's word; an operator's word is waited for longer and longer.
        (2, 'closed', o.closed AND o.closed_until > o.now,
            CASE WHEN o.closed_until < 'infinity' THEN o.closed_until
                 ELSE o.now + least(greatest(o.now - o.closed_at, interval '1 minute'), interval '1 hour') END),
        (2, 'probing', o.closed AND o.closed_until <= o.now AND o.probe IS NOT NULL, o.soon),
        -- What is under way may end cheaper than it holds: that is no reason to wait for a day.
        (1, 'held', o.tokens_used + o.tokens_held + $10::bigint > o.daily_tokens
                 OR o.cost_used + o.cost_held + $11::bigint > o.daily_cost_micro, o.soon),
        (1, 'in_flight', o.in_flight >= o.max_in_flight, o.soon),
        -- A model that has not answered yet may refuse everybody: a few ask ($12), and who has heard
        -- nothing after a while ($13 ms) was not refused.
        (1, 'untried', o.scope = 'model' AND o.untried_until > o.now AND o.in_flight >= $12::int,
            least(o.untried_until, o.soon)),
        (1, 'requests', o.requests_over + make_interval(secs => o.request_step - o.request_room) > o.now,
            o.requests_over + make_interval(secs => o.request_step - o.request_room)),
        (1, 'tokens', o.tokens_over + make_interval(secs => o.token_step - o.token_room) > o.now,
            o.tokens_over + make_interval(secs => o.token_step - o.token_room))
    ) AS h (grave, reason, stands, until)
    WHERE h.stands
),
-- The one that is told: the gravest, and of those the longest.
hurdle AS MATERIALIZED (
    SELECT h.scope, h.name, h.grave, h.reason, h.until FROM hurdles h
    ORDER BY h.grave DESC, h.until DESC, h.scope, h.name LIMIT 1
),
verdict AS MATERIALIZED (
    SELECT c.known AND NOT r.repeated AND NOT EXISTS (SELECT FROM hurdle) AS granted, r.repeated
    FROM clock c, (SELECT EXISTS (SELECT FROM llm_calls WHERE id = $1) AS repeated) r
),
-- Those who wait come back one after another, at the pace that lets them in: nobody is early, and no
-- two at the same moment. The step is that of the tightest limit, else 20 a second.
turn AS MATERIALIZED (
    SELECT h.scope, h.name, h.reason, h.grave,
           greatest(h.until, CASE h.grave WHEN 3 THEN o.park_turn_at ELSE o.turn_at END) AS at,
           make_interval(secs => greatest(0.05, o.request_step, o.token_step,
                                          o.latency_ms / 1000 / o.max_in_flight)) AS step,
           h.grave = 3 AND o.budget_told_on IS DISTINCT FROM o.today AS untold
    FROM hurdle h JOIN owed o ON o.scope = h.scope AND o.name = h.name
    JOIN verdict v ON NOT v.repeated
),
counted AS (
    UPDATE llm_quotas q
    SET request_tat = CASE WHEN v.granted AND o.request_step IS NOT NULL
            THEN o.requests_over + make_interval(secs => o.request_step) ELSE q.request_tat END,
        token_tat = CASE WHEN v.granted AND o.token_step IS NOT NULL
            THEN o.tokens_over + make_interval(secs => o.token_step) ELSE q.token_tat END,
        in_flight = q.in_flight + v.granted::int,
        day = o.today,
        used_tokens = o.tokens_used,
        held_tokens = least(9223372036854775807, o.tokens_held + CASE WHEN v.granted THEN $10::bigint ELSE 0 END),
        used_cost_micro = o.cost_used,
        held_cost_micro = least(9223372036854775807, o.cost_held + CASE WHEN v.granted THEN coalesce($11::bigint, 0) ELSE 0 END),
        probe = CASE WHEN v.granted AND o.closed THEN $1 ELSE q.probe END,
        untried_until = CASE WHEN v.granted AND o.untried_until = 'infinity'
            THEN o.now + make_interval(secs => $13::bigint / 1000.0) ELSE q.untried_until END,
        turn_at = CASE WHEN t.grave < 3 THEN t.at + t.step ELSE q.turn_at END,
        park_turn_at = CASE WHEN t.grave = 3 THEN t.at + t.step ELSE q.park_turn_at END
    FROM owed o CROSS JOIN verdict v LEFT JOIN turn t ON t.scope = o.scope AND t.name = o.name
    WHERE q.scope = o.scope AND q.name = o.name
),
sent AS (
    INSERT INTO llm_calls (id, task_id, step, call_no, run, token, state, request_hash, endpoint, model,
                           traceparent, started_at, schedule, task_type, day, budget_day, est_tokens, est_cost_micro)
    SELECT $1, m.id, $4, $5, m.run, $3, 'sent', $6, $7, $8, $9, c.now, m.schedule, m.task_type,
           (SELECT o.today FROM owed o WHERE o.scope = 'model'), (SELECT o.today FROM owed o WHERE o.scope = 'schedule'),
           $10::bigint, $11::bigint
    FROM mine m, clock c, verdict v WHERE v.granted
),
waits AS (
    INSERT INTO llm_waits AS w (task_id, scope, name, reason, since, until)
    SELECT m.id, t.scope, t.name, t.reason, c.now, t.at FROM mine m, clock c, turn t WHERE t.grave < 4
    ON CONFLICT (task_id) DO UPDATE
    SET scope = excluded.scope, name = excluded.name, reason = excluded.reason, until = excluded.until
),
waited AS (
    DELETE FROM llm_waits w USING mine m, verdict v WHERE w.task_id = m.id AND v.granted
)
SELECT c.known, v.granted OR v.repeated AS granted, t.scope, t.name, t.reason,
       ceil(extract(epoch FROM t.at - c.now) * 1000)::bigint AS wait_ms, o.over_budget, o.closed_reason,
       o.tomorrow, o.tokens_per_minute, o.daily_tokens, o.tokens_used::bigint AS used_tokens,
       o.tokens_held::bigint AS held_tokens, o.daily_cost_micro, o.cost_used::bigint AS used_cost_micro,
       o.cost_held::bigint AS held_cost_micro, coalesce(t.untold, false) AS untold, o.today,
       format('%s (%s)', to_char(o.tomorrow AT TIME ZONE o.timezone, 'YYYY-MM-DD HH24:MI'), o.timezone) AS tomorrow_there
FROM mine m CROSS JOIN clock c CROSS JOIN verdict v
LEFT JOIN turn t ON true LEFT JOIN owed o ON o.scope = t.scope AND o.name = t.name
