//! The ledger as its users meet it: clean on a house that keeps its promises, and naming each
//! promise that somebody breaks by hand.

#[path = "ledger/aside.rs"]
mod aside;
#[path = "ledger/house.rs"]
mod house;

use std::collections::BTreeSet;

use aside::{KEEP, RESTORE};
use house::{House, POOL};
use serde_json::Value;
use shared::broker::{Destination, Properties, Publisher};
use shared::shutdown::Shutdown;
use shared::testing::PATIENCE;

/// Promise, check, and how it is broken.
const BREAKS: &[(u8, &str, &str)] = &[
    (1, "instants", "DELETE FROM ticks WHERE outcome = 'skipped_overlap'"),
    (1, "instants", "UPDATE ticks SET first_at = first_at + interval '10 minutes', count = 2 WHERE count = 3"),
    (1, "instants", "UPDATE ticks SET first_at = planned_at - interval '50 minutes', count = 6
                     WHERE outcome = 'skipped_overlap'"),
    (1, "rows", "INSERT INTO ticks (schedule, planned_at, outcome, decided_at, epoch)
                 SELECT schedule, planned_at + interval '1 minute', 'paused', decided_at, epoch FROM ticks
                 WHERE outcome = 'enqueued'"),
    (1, "rows", "UPDATE ticks SET count = 2 WHERE count = 3"),
    (1, "targets", "UPDATE ticks SET task_id = gen_random_uuid() WHERE outcome = 'enqueued'"),
    (1, "tasks", "UPDATE ticks SET outcome = 'deduplicated' WHERE outcome = 'enqueued'"),
    (1, "tasks", "UPDATE ticks SET outcome = 'enqueued' WHERE outcome = 'deduplicated'"),
    (1, "targets", "UPDATE by_hand SET task_id = gen_random_uuid()"),
    (1, "tasks", "DELETE FROM by_hand"),
    (1, "by_hand", "UPDATE by_hand SET scheduled_for = (SELECT planned_at FROM ticks WHERE outcome = 'enqueued')"),
    (1, "terms", "UPDATE ticks SET epoch = 2 WHERE outcome = 'enqueued'"),
    (2, "keys", "DELETE FROM execution_keys WHERE name = 'done'"),
    (2, "keys", "UPDATE execution_keys SET task_id = gen_random_uuid() WHERE name = 'dead'"),
    (2, "results", "DELETE FROM task_results WHERE task_id = named('done')"),
    (2, "results", "INSERT INTO task_results VALUES (named('dead'), '{}')"),
    (2, "completions", "UPDATE attempts SET outcome = 'completed' WHERE task_id = named('retried') AND run = 1"),
    (2, "completions", "UPDATE attempts SET outcome = 'snooze' WHERE task_id = named('done')"),
    (2, "claims", "UPDATE attempts SET token = gen_random_uuid() WHERE task_id = named('running')"),
    (2, "claims", "UPDATE attempts SET ended_at = NULL, outcome = NULL WHERE task_id = named('rescued') AND run = 1"),
    (2, "sequence", "UPDATE attempts SET started_at = started_at - interval '1 hour'
                     WHERE task_id = named('rescued') AND run = 2"),
    (2, "journal", "UPDATE steps SET token = gen_random_uuid()"),
    (2, "journal", "UPDATE llm_calls SET run = 2"),
    (3, "accepted", "DELETE FROM tasks WHERE id = named('unpublished')"),
    (3, "accepted", "DELETE FROM task_inputs WHERE task_id = named('unpublished')"),
    (3, "accepted", "DELETE FROM tasks WHERE id = named('done');
                     DELETE FROM task_inputs WHERE name = 'done'"),
    (3, "messages", "UPDATE tasks SET due_at = due_at - interval '1 minute',
                     published_at = published_at - interval '1 minute' WHERE id = named('published')"),
    (3, "running", "DELETE FROM workers w USING tasks t WHERE t.state = 'running' AND t.incarnation = w.id"),
    (3, "running", "UPDATE tasks SET deadline_at = belfry_now() - interval '1 minute' WHERE state = 'running'"),
    (3, "held", "UPDATE tasks SET due_at = belfry_now() WHERE state = 'scheduled'"),
    (3, "held", "UPDATE tasks SET state = 'waiting' WHERE id = named('unpublished')"),
    (3, "letters", "UPDATE dead_letters SET resolved_at = belfry_now(), resolution = 'replayed'
                    WHERE task_id = named('dead')"),
    (3, "letters", "DELETE FROM dead_letters WHERE task_id = named('once')"),
    (3, "letters", "UPDATE dead_letters SET resolved_at = NULL, resolution = NULL
                    WHERE task_id = named('replayed')"),
    (3, "alerts", "DELETE FROM alerts WHERE id = 1"),
    (4, "paid_once", "INSERT INTO llm_calls (id, task_id, step, call_no, run, token, state, request_hash, endpoint,
                          model, response, started_at, ended_at)
                      SELECT gen_random_uuid(), task_id, step, 3, run, token, state, request_hash, endpoint, model,
                          response, ended_at, ended_at + interval '1 second' FROM llm_calls WHERE state = 'done'"),
    (4, "sent", "UPDATE llm_calls SET state = 'sent', ended_at = NULL WHERE state = 'unknown'"),
    (4, "counters", "UPDATE llm_quotas SET in_flight = in_flight + 1"),
    (4, "counters", "UPDATE llm_quotas SET used_tokens = used_tokens + 1"),
    (4, "counters", "UPDATE llm_calls SET est_cost_micro = est_cost_micro + 1 WHERE state = 'unknown'"),
    (5, "runs", "UPDATE tasks SET run = 1 WHERE id = named('published')"),
    (5, "runs", "DELETE FROM attempts WHERE task_id = named('retried') AND run = 2"),
    (5, "early", "UPDATE attempts SET delay_ms = 60000 WHERE outcome = 'snooze'"),
    (5, "late", "UPDATE tasks SET start_by = created_at - interval '1 hour' FROM task_inputs i WHERE i.task_id = id AND id = named('done')"),
    (6, "once", "UPDATE task_inputs SET at_most_once = true WHERE name = 'rescued'"),
    (6, "counts", "UPDATE tasks SET failures = 0 WHERE id = named('retried')"),
    (6, "counts", "UPDATE tasks SET crashes = 2 WHERE id = named('rescued')"),
];

/// Says a task by its name.
const NAMED: &str = "CREATE FUNCTION named(text) RETURNS uuid LANGUAGE sql STABLE AS \
                     $$ SELECT task_id FROM task_inputs WHERE name = $1 $$";

#[tokio::test]
async fn a_house_that_keeps_its_promises_is_clean() {
    let house = House::worked().await;

    let answer = house.ledger(&["--json"]);

    assert_eq!(answer.code, Some(0), "{}{}", answer.stdout, answer.stderr);
    let ledger: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    assert_eq!(ledger["ok"], true);
    // Looked at, and not only found to be empty.
    for (check, counted) in [
        ("instants", 6),
        ("rows", 4),
        ("targets", 3),
        ("tasks", 2),
        ("by_hand", 1),
        ("terms", 4),
        ("results", 4),
        ("completions", 14),
        ("sequence", 4),
        ("journal", 3),
        ("messages", 3),
        ("running", 1),
        ("held", 1),
        ("letters", 4),
        ("alerts", 4),
        ("paid_once", 1),
        ("counters", 1),
        ("unknown", 1),
        ("early", 2),
        ("orphans", 1),
        ("once", 1),
    ] {
        assert_eq!(checked(&ledger, check)["counted"], counted, "{check}");
    }
}

/// Nothing is broken where nobody ticks, and it is told all the same.
#[tokio::test]
async fn a_fleet_that_no_longer_ticks_is_told_and_is_no_breach() {
    let house = House::worked().await;
    house
        .sql(
            "INSERT INTO schedules (name, spec, cron, timezone, task_type, mark, applied_at, paused_at, removed_at)
             SELECT name, spec::jsonb, cron, 'UTC', 'http_call', at, at, paused, removed
             FROM (SELECT belfry_now() - interval '10 minutes' AS at, belfry_now() AS now) n,
             LATERAL (VALUES
                ('minutely', '{}', '* * * * *', NULL, NULL),
                ('paused', '{}', '*/2 * * * *', now, NULL),
                ('removed', '{}', '* * * * *', NULL, now),
                ('over', json_build_object('end_at', at)::text, '* * * * *', NULL, NULL),
                ('begins', json_build_object('start_at', now)::text, '* * * * *', NULL, NULL),
                ('seldom', '{}', '0 0 29 2 *', NULL, NULL)
             ) s (name, spec, cron, paused, removed)",
        )
        .await;

    let (text, json) = (house.ledger(&[]), house.ledger(&["--json"]));

    assert_eq!((text.code, json.code), (Some(0), Some(0)), "{}{}", text.stdout, text.stderr);
    let undecided = &serde_json::from_str::<Value>(&json.stdout).expect("JSON")["undecided"];
    let first = undecided["first"].as_array().expect("a list");
    let names: Vec<&str> = first.iter().filter_map(|due| due["schedule"].as_str()).collect();
    // The instants of a pause are decided too.
    assert_eq!((&undecided["schedules"], &names[..]), (&2.into(), &["minutely", "paused"][..]));
    assert_eq!(first[0]["planned_at"], undecided["oldest"]);
    let line = text.stdout.lines().find(|line| line.starts_with("undecided: ")).expect("a line");
    assert!(line.contains("2 schedules wait since 20") && line.contains(": minutely 20"), "{line}");
    house.sql("UPDATE schedules SET mark = belfry_now(), applied_at = belfry_now()").await;
    let decided = house.ledger(&[]).stdout;
    assert!(decided.contains("\nundecided: none\n"), "{decided}");
}

#[tokio::test]
async fn each_promise_that_is_broken_is_named() {
    let known: BTreeSet<_> = loadtest::ledger::checks()
        .iter()
        .filter(|check| !check.only_settled && !check.counts.contains("never a violation"))
        .map(|check| (check.promise, check.name))
        .collect();
    assert_eq!(known, BREAKS.iter().map(|(promise, check, _)| (*promise, *check)).collect());

    let house = House::worked().await;
    house.sql(NAMED).await;
    house.sql(KEEP).await;

    let whole = house.ledger(&[]);
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    for (promise, check, sql) in BREAKS {
        house.sql(RESTORE).await;
        house.sql(sql).await;

        let answer = house.ledger(&["--json"]);

        assert_eq!(answer.code, Some(1), "{check}: {sql}\n{}{}", answer.stdout, answer.stderr);
        let said = format!("promise {promise} (");
        assert!(answer.stderr.contains(&said), "{check}: {sql}\n{}", answer.stderr);
        let ledger: Value = serde_json::from_str(&answer.stdout).expect("JSON");
        let found = checked(&ledger, check);
        assert_eq!(found["ok"], false, "{check}: {sql}\n{}", answer.stderr);
        assert!(found["offenders"][0].is_string(), "{check} names nothing: {sql}");
    }
    house.sql(RESTORE).await;
    let restored = house.ledger(&[]);
    assert_eq!(restored.code, Some(0), "every break was one of its own: {}", restored.stderr);
}

fn checked<'a>(ledger: &'a Value, check: &str) -> &'a Value {
    let promises = ledger["promises"].as_array().expect("promises");
    let mut checks = promises.iter().flat_map(|kept| kept["checks"].as_array().expect("checks"));
    checks.find(|found| found["name"] == check).expect("the check was asked")
}

/// A message is lost when the queue is empty, not when its task is late: a backlog is no loss.
#[tokio::test]
async fn a_late_task_is_lost_only_when_the_broker_holds_nothing() {
    let house = House::worked().await;
    house.sql(NAMED).await;
    let (operator, topology, settings) = house.broker().await;
    operator.declare(&topology).await.expect("declared");
    let shutdown = Shutdown::new();
    let publisher = Publisher::start(&settings, &topology, &shutdown).expect("a URL");
    publisher.ready(PATIENCE).await.expect("connected");
    let waiting = house.store.unpublished(None, std::time::Duration::ZERO).await.expect("rows");
    let message = &waiting.first().expect("one unpublished task").message;
    publisher.publish(Destination::Tasks, message).await.expect("confirmed");
    house
        .sql(
            "UPDATE tasks SET due_at = due_at - interval '1 minute', \
              published_at = published_at - interval '1 minute' WHERE id = named('published')",
        )
        .await;

    let backlog = house.ledger(&[]);
    operator.delete_queue(&topology.pool_queue(POOL)).await.expect("deleted");
    let lost = house.ledger(&[]);

    shutdown.soft.cancel();
    shutdown.hard.cancel();
    drop(publisher);
    shutdown.drained().await;
    operator.delete_all(&topology).await.expect("deleted");
    assert_eq!(backlog.code, Some(0), "{}{}", backlog.stdout, backlog.stderr);
    assert_eq!(lost.code, Some(1), "{}", lost.stdout);
    assert!(
        lost.stderr.contains("promise 3 (nothing accepted is lost) is broken: messages (1 of 3)")
    );
}

#[tokio::test]
async fn a_settled_house_has_no_task_and_no_message_left() {
    let house = House::worked().await;
    let (operator, topology, settings) = house.broker().await;
    operator.declare(&topology).await.expect("declared");

    let at_work = house.ledger(&["--expect-settled"]);
    house.settle().await;
    let settled = house.ledger(&["--expect-settled"]);
    let shutdown = Shutdown::new();
    let publisher = Publisher::start(&settings, &topology, &shutdown).expect("a URL");
    publisher.ready(PATIENCE).await.expect("connected");
    let key = format!("{POOL}.http_call");
    let sent = publisher.publish_raw(&topology.tasks(), &key, b"{}", &Properties::default()).await;
    let littered = house.ledger(&["--expect-settled"]);

    shutdown.soft.cancel();
    shutdown.hard.cancel();
    drop(publisher);
    shutdown.drained().await;
    operator.delete_all(&topology).await.expect("deleted");
    sent.expect("confirmed");
    assert_eq!(at_work.code, Some(1));
    assert!(at_work.stderr.contains("settled_tasks (4 of"), "{}", at_work.stderr);
    assert_eq!(settled.code, Some(0), "{}{}", settled.stdout, settled.stderr);
    assert_eq!(littered.code, Some(1));
    assert!(littered.stderr.contains("settled_queues (1 of"), "{}", littered.stderr);
}

#[tokio::test]
async fn a_service_that_is_away_is_not_a_broken_promise() {
    let house = House::at("postgres://belfry:secret@127.0.0.1:1/belfry").await;

    let answer = house.ledger(&[]);

    assert_eq!(answer.code, Some(4), "{}", answer.stderr);
    assert!(answer.stderr.contains("127.0.0.1:1") && !answer.stderr.contains("secret"));
}
