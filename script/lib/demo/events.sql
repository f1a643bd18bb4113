-- The rest of the numbers, a line each.
SELECT 'attempts: ' || string_agg(n || ' ' || outcome, ', ' ORDER BY n DESC)
FROM (SELECT count(*) AS n, coalesce(outcome, 'running') AS outcome FROM attempts GROUP BY 2) AS outcomes;
SELECT 'recovered: ' || count(*) || ' of ' || :'victim' || ', given back '
       || round(extract(epoch FROM max(a.ended_at - w.seen_at))::numeric, 1) || ' s after its last heartbeat; finished by '
       || string_agg(DISTINCT next.worker, ', ')
FROM attempts a
JOIN workers w ON w.id = a.incarnation
JOIN attempts next ON next.task_id = a.task_id AND next.run = a.run + 1
WHERE a.outcome = 'lease_expired';
SELECT 'leader: ' || :'old_leader' || ' was killed, ' || label || ' took over ' || :'takeover' || ' s later, term ' || epoch
FROM leadership;
SELECT 'dead letters: ' || count(*) || ', replayed ' || count(*) FILTER (WHERE resolution = 'replayed') || ', alerts sent '
       || (SELECT count(*) FROM alerts WHERE sent_at IS NOT NULL)
FROM dead_letters;
SELECT 'model: ' || count(*) || ' calls, ' || coalesce(sum(input_tokens), 0) || ' tokens in, ' || coalesce(sum(output_tokens), 0)
       || ' out, would have cost $' || round(coalesce(sum(cost_micro), 0) / 1e6, 4)
FROM llm_calls;
