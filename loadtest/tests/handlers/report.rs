//! Reports: each part once, the artifact once, the copy whole.

use loadtest::stub_llm::Fault;
use serde_json::{Value, json};
use shared::domain::outcome::ErrorClass;

use crate::house::{House, fate};

fn config(directory: &std::path::Path) -> String {
    format!(
        r#"sources: {{s: {{dsn: "DSN"}}}}
artifacts: {{dir: "{}"}}
reports:
  orders:
    queries:
      by_status: {{source: s, sql: "SELECT status, count(*) AS n FROM orders WHERE day = $1 GROUP BY status ORDER BY 1", params: ["{{{{ date }}}}"]}}
    fetches:
      weather: {{url: "STUB/echo?day={{{{ date }}}}"}}
    summary_prompt: "Summarise {{{{ by_status | tojson }}}}"
    template: |
      # {{{{ report }}}} of {{{{ date }}}}
      {{% for row in by_status %}}- {{{{ row.status }}}}: {{{{ row.n }}}}
      {{% endfor %}}
      Weather asked for {{{{ weather.query.day }}}}. {{{{ summary }}}}
  broken: {{template: "{{{{ missing }}}}"}}
"#,
        directory.display()
    )
}

async fn house(directory: &std::path::Path) -> House {
    let house = House::open(&config(directory)).await;
    let orders = "CREATE TABLE orders (day date, status text);
        INSERT INTO orders VALUES ('2026-11-30', 'paid'), ('2026-11-30', 'paid'), ('2026-11-30', 'new')";
    house.database.client().await.batch_execute(orders).await.expect("orders");
    house
}

fn payload() -> Value {
    json!({"report": "orders", "date": "2026-11-30"})
}

#[tokio::test]
async fn a_report_has_its_data_its_summary_and_its_copy() {
    let directory = tempfile::tempdir().expect("a directory");
    let house = house(directory.path()).await;
    let task = house.task("report_generation", payload()).await;

    let result = house.once(task).await.expect("completed");

    let (artifact, content) = house
        .store
        .artifact(None, Some("orders"), Some("2026-11-30"))
        .await
        .expect("read")
        .expect("an artifact");
    let text = String::from_utf8(content.clone()).expect("text");
    for part in
        ["# orders of 2026-11-30", "- new: 1\n", "- paid: 2\n", "asked for 2026-11-30. Summary "]
    {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(
        (&result["artifact"], &result["sha256"]),
        (&json!(artifact.id), &json!(artifact.sha256))
    );
    assert_eq!(
        std::fs::read(directory.path().join("orders-2026-11-30.md")).expect("a copy"),
        content
    );
    let row = house.store.task(task).await.expect("read").expect("a task");
    assert_eq!(row.progress.map(|progress| (progress.done, progress.failed)), Some((3, 0)));
}

#[tokio::test]
async fn a_retry_repeats_only_what_failed() {
    let directory = tempfile::tempdir().expect("a directory");
    let house = house(directory.path()).await;
    house.stub.script("m", vec![Fault::status(500)]);
    let task = house.task("report_generation", payload()).await;

    assert_eq!(fate(house.once(task).await).0, "retry");
    let row = house.store.task(task).await.expect("read").expect("a task");
    assert_eq!(row.progress.map(|progress| (progress.done, progress.failed)), Some((2, 1)));
    // Were the query run again, it would see this.
    let change = "UPDATE orders SET status = 'changed'";
    house.database.client().await.batch_execute(change).await.expect("changed");
    house.once(task).await.expect("completed");

    let kept = house.store.artifact(None, Some("orders"), None).await.expect("read").expect("one");
    assert!(String::from_utf8(kept.1).expect("text").contains("- paid: 2"));
    assert_eq!(house.stub.usage().total.answered, 1);
}

#[tokio::test]
async fn the_report_of_a_date_is_made_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let house = house(directory.path()).await;
    let first = house.first("report_generation", payload()).await.expect("completed");
    let again = house.first("report_generation", payload()).await.expect("completed");
    assert_eq!(first["artifact"], again["artifact"]);
    assert!(again["made_by"].is_string() && first.get("made_by").is_none());
}

#[tokio::test]
async fn a_report_that_cannot_be_made_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let house = house(directory.path()).await;
    for (report, words) in
        [("broken", "template of the report may use date, report"), ("other", "broken, orders")]
    {
        let (seen, failure) =
            fate(house.first("report_generation", json!({ "report": report })).await);
        assert_eq!((seen, failure.class), ("dead", ErrorClass::Permanent));
        assert!(failure.message.contains(words), "{failure}");
    }
}
