//! `http_call` and `db_query`: their results, their refusals, their secrets.

use serde_json::{Value, json};
use shared::domain::outcome::{ErrorClass, TaskError};

use crate::house::{House, SECRET, fate};

fn url(house: &House, path: &str) -> Value {
    json!({"url": format!("{}{path}", house.stub.url)})
}

#[tokio::test]
async fn an_answer_is_the_result_and_secrets_do_not_come_back() {
    let house = House::open("").await;
    let mut payload = url(&house, "/echo?a=1");
    payload["method"] = json!("post");
    payload["query"] = json!({"b": 2});
    payload["headers"] = json!({"Authorization": "Bearer secret:token", "X-Plain": "p"});
    payload["body"] = json!({"key": "secret:token", "n": 1});
    let task = house.task("http_call", payload).await;

    let result = house.once(task).await.expect("completed");

    assert_eq!(result["status"], 200);
    let seen = &result["body"];
    assert_eq!(seen["query"], json!({"a": "1", "b": "2"}));
    assert_eq!(seen["headers"]["idempotency-key"], task.to_string());
    assert_eq!(seen["headers"]["content-type"], "application/json");
    assert_eq!(
        (&seen["headers"]["authorization"], &seen["body"]["key"]),
        (&json!("Bearer …"), &json!("…"))
    );
    assert!(!result.to_string().contains(SECRET));
}

#[tokio::test]
async fn every_status_has_its_fate() {
    let house = House::open("").await;
    for (path, expected) in [
        ("/status/404", "dead"),
        ("/status/400", "dead"),
        ("/status/304", "dead"),
        ("/status/408", "retry"),
        ("/status/425", "retry"),
        ("/status/429", "snooze"),
        ("/always/500", "retry"),
        ("/status/503", "retry"),
    ] {
        let (seen, failure) = fate(house.first("http_call", url(&house, path)).await);
        assert_eq!(seen, expected, "{path}: {failure}");
    }
    let mut wanted = url(&house, "/status/404");
    wanted["expect_status"] = json!([404, 410]);
    assert_eq!(house.first("http_call", wanted).await.expect("as expected")["status"], 404);
}

#[tokio::test]
async fn a_flaky_service_is_served_by_the_third_attempt() {
    let house = House::open("").await;
    let task = house.task("http_call", url(&house, "/flaky?key=k&fail=2")).await;
    for _ in 0..2 {
        assert_eq!(fate(house.once(task).await).0, "retry");
    }
    assert_eq!(house.once(task).await.expect("completed")["body"]["request"], 3);
}

#[tokio::test]
async fn slow_large_and_forbidden_targets_are_bounded() {
    let house = House::open("").await;
    let mut slow = url(&house, "/slow?ms=5000");
    slow["timeout"] = json!("100ms");
    let (seen, failure) = fate(house.first("http_call", slow).await);
    assert_eq!((seen, failure.class), ("retry", ErrorClass::Timeout));

    let large = house.first("http_call", url(&house, "/bytes?n=1000000")).await.expect("cut");
    assert_eq!(large["truncated"], true);
    assert_eq!(large["body"].as_str().map(str::len), Some(256 * 1024));

    let target = "http://169.254.169.254/latest";
    for payload in [json!({"url": target}), url(&house, &format!("/redirect?to={target}"))] {
        let (seen, failure) = fate(house.first("http_call", payload).await);
        assert_eq!(seen, "dead", "{failure}");
        assert!(failure.message.contains("http.allow_hosts"), "{failure}");
    }
}

#[tokio::test]
async fn a_missing_secret_is_named() {
    let house = House::open("").await;
    let mut payload = url(&house, "/echo");
    payload["headers"] = json!({"X-Key": "secret:other"});
    let (seen, failure) = fate(house.first("http_call", payload).await);
    assert_eq!(seen, "dead");
    assert!(failure.message.contains("\"other\""), "{failure}");
}

const SOURCES: &str = "sources:\n  s: {dsn: \"DSN\", max_rows: 10, statement_timeout: 1s}\n  \
                       w: {dsn: \"DSN\", mode: write}\n  gone: {dsn: \"postgres://a:b@127.0.0.1:1/d\"}";

#[tokio::test]
async fn rows_become_faithful_json() {
    let house = House::open(SOURCES).await;
    let sql = "SELECT 1 AS i, 9007199254740993 AS big, 12.50 AS n, 12345678901234567890.125 AS long,
        'it''s' AS t, true AS b, NULL::text AS nothing, ARRAY[1,2] AS a, '{\"k\": [1]}'::jsonb AS j,
        timestamptz '2026-11-30 18:00+08' AS at, date '2026-11-30' AS d, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS u,
        decode('00ff', 'hex') AS bytes, 'NaN'::float8 AS nan -- the end;";
    let result = house.first("db_query", json!({"source": "s", "sql": sql})).await.expect("rows");
    let expected = json!({
        "i": 1, "big": 9_007_199_254_740_993_i64, "n": 12.5, "long": "12345678901234567890.125",
        "t": "it's", "b": true, "nothing": null, "a": [1, 2], "j": {"k": [1]},
        "at": "2026-11-30T10:00:00+00:00", "d": "2026-11-30", "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "bytes": "AP8=", "nan": "NaN",
    });
    assert_eq!(result, json!({"row_count": 1, "rows": [expected]}));
}

#[tokio::test]
async fn parameters_are_bound_never_pasted() {
    let house = House::open(SOURCES).await;
    let sql = "SELECT $1::text AS t, $2::int AS i, $3::date AS d, $4::int[] AS a, $5::jsonb AS j, $6::bool AS b;";
    let params = json!(["'; DROP TABLE tasks; --", "7", "2026-11-30", [1, null], {"k": 1}, null]);
    let payload = json!({"source": "s", "sql": sql, "params": params});
    let result = house.first("db_query", payload).await.expect("rows");
    let row = json!({"t": "'; DROP TABLE tasks; --", "i": 7, "d": "2026-11-30", "a": [1, null], "j": {"k": 1}, "b": null});
    assert_eq!(result["rows"][0], row);
}

#[tokio::test]
async fn what_a_source_must_not_do_it_does_not() {
    let house = House::open(SOURCES).await;
    house.database.client().await.batch_execute("CREATE TABLE t (n int)").await.expect("a table");
    for (source, sql, expected, words) in [
        ("s", "INSERT INTO t VALUES (1) RETURNING n", "dead", "mode: read"),
        ("s", "DELETE FROM t", "dead", "returns no rows"),
        ("s", "SELECT 1; DROP TABLE t", "dead", "multiple commands"),
        ("s", "SELECT 1) SELECT 2 FROM q; --", "dead", "42601"),
        ("s", "SET ROLE none", "dead", "returns no rows"),
        ("s", "COPY t TO PROGRAM 'id'", "dead", "returns no rows"),
        ("s", "SELECT pg_read_file('/etc/passwd')", "dead", "permission denied"),
        ("s", "SELECT set_config('transaction_read_only', 'off', false)", "dead", "25001"),
        ("s", "SELECT pg_sleep(30)", "retry", "57014"),
        ("s", "SELECT * FROM generate_series(1, 11)", "dead", "more than 10 rows"),
        ("s", "SELECT repeat('x', 2000000)", "dead", "1048576 bytes"),
        ("s", "SELECT nothing FROM t", "dead", "at character 8"),
        ("s", "SELECT $1::int", "dead", "1 parameters, and params has 0"),
        ("s", "SELECT 1 AS n, 2 AS n, 3 AS m", "dead", "more than one column \"n\""),
        ("s", "SELECT count(*), count(1)", "dead", "column \"count\", and a row keeps one"),
        ("w", "INSERT INTO t VALUES (1) RETURNING n, n", "dead", "name them with AS"),
        ("s", "SELECT 1 / count(*) AS empty FROM t", "dead", "division by zero"),
        ("other", "SELECT 1", "dead", "gone, s, w"),
        ("gone", "SELECT 1", "retry", "cannot reach"),
    ] {
        let (seen, failure) =
            fate(house.first("db_query", json!({"source": source, "sql": sql})).await);
        assert_eq!(seen, expected, "{sql}: {failure}");
        assert!(failure.message.contains(words), "{sql}: {failure}");
    }
    // The connections are as good as new, whatever was tried on them.
    for sql in ["SELECT set_config('statement_timeout', '1', false)", "SELECT pg_sleep(0.1)"] {
        house.first("db_query", json!({"source": "s", "sql": sql})).await.expect(sql);
    }
}

#[tokio::test]
async fn a_source_for_writing_writes_and_commits() {
    let house = House::open(SOURCES).await;
    let write = |sql: &str| json!({"source": "w", "sql": sql, "params": []});
    house.first("db_query", write("CREATE TABLE t (n int)")).await.expect("created");
    let inserted =
        house.first("db_query", write("INSERT INTO t VALUES (1), (2) RETURNING n")).await;
    assert_eq!(inserted.expect("rows")["rows"], json!([{"n": 1}, {"n": 2}]));
    let updated = house.first("db_query", write("UPDATE t SET n = n + 1")).await.expect("updated");
    assert_eq!(updated["rows"], json!([{"rows_affected": 2}]));
    let read =
        house.first("db_query", json!({"source": "s", "sql": "SELECT sum(n) AS n FROM t"})).await;
    assert_eq!(read.expect("rows")["rows"][0]["n"], 5);
}

#[tokio::test]
async fn a_probe_does_what_it_is_told() {
    let house = House::open("").await;
    let task = house
        .task("probe", json!({"mode": "retry", "fail_times": 1, "sleep_ms": 1, "echo": [1]}))
        .await;
    assert_eq!(fate(house.once(task).await).0, "retry");
    assert_eq!(house.once(task).await.expect("completed"), json!({"run": 2, "echo": [1]}));
    match house.first("probe", json!({"mode": "snooze", "snooze_ms": 5})).await {
        Err(TaskError::Snooze { delay, .. }) => assert_eq!(delay.as_millis(), 5),
        other => panic!("{other:?}"),
    }
}
