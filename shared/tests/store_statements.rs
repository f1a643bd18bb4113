//! Every statement is understood by the migrated schema, and the schema explains itself.
#![cfg(feature = "testing")]

use std::path::Path;

use shared::testing::TestDatabase;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sql").join(name);
    std::fs::read_to_string(&path).expect("a statement")
}

#[tokio::test]
async fn every_statement_is_prepared_against_the_migrated_schema() {
    let database = TestDatabase::create().await;
    let client = database.client().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sql");
    let mut prepared = 0;

    for entry in std::fs::read_dir(folder).expect("statements") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        // These are beginnings that another file continues.
        let text = match name.as_str() {
            "give_back.sql" | "unpublished.sql" => continue,
            "rescue.sql" | "deadline.sql" | "audit.sql" => read(&name) + &read("give_back.sql"),
            "look.sql" | "named.sql" => read(&name) + &read("unpublished.sql"),
            _ => read(&name),
        };
        client.prepare(&text).await.unwrap_or_else(|error| {
            panic!("{name}: {}", error.as_db_error().map_or(error.to_string(), ToString::to_string))
        });
        assert!(text.starts_with("--"), "{name} does not say why it is");
        prepared += 1;
    }

    assert!(prepared >= 30, "only {prepared} statements were found");
}

#[tokio::test]
async fn every_table_and_column_has_a_sentence() {
    let database = TestDatabase::create().await;
    let client = database.client().await;
    let silent = "SELECT c.relname || coalesce('.' || a.attname, '') AS name
        FROM pg_class c
        LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            AND c.relkind = 'r'
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v')
          AND c.relname <> 'refinery_schema_history'
          AND (obj_description(c.oid) IS NULL
               OR (a.attnum IS NOT NULL AND col_description(c.oid, a.attnum) IS NULL))";

    let rows = client.query(silent, &[]).await.expect("catalogue");

    let names: Vec<String> = rows.iter().map(|row| row.get("name")).collect();
    assert!(names.is_empty(), "without a COMMENT: {names:?}");
}

#[tokio::test]
async fn six_starters_migrate_an_empty_database_at_once() {
    let database = TestDatabase::empty().await;

    let starters = (0..6).map(|_| shared::store::migrate(&database.dsn));
    let reports = futures::future::join_all(starters).await;

    let applied: usize = reports.into_iter().map(|r| r.expect("migrated").applied.len()).sum();
    assert_eq!(applied, shared::store::migration_texts().len());
    database.store().check_schema().await.expect("the right version");
}

/// A pause that still matters goes on to matter, and who was renamed has the heir that it had.
#[tokio::test]
async fn pauses_and_heirs_are_taken_over_by_the_migration_that_keeps_them_anew() {
    let database = TestDatabase::empty().await;
    let client = database.client().await;
    let texts = shared::store::migration_texts();
    let old = "INSERT INTO schedules (name, spec, cron, timezone, task_type, mark, applied_at, removed_at, formerly, last_pause)
        VALUES ('a', '{}', '', '', '', '2026-01-02', '2026-01-01', '2026-01-02', '{}', NULL),
               ('b', '{}', '', '', '', '2026-01-02', '2026-01-02', '2026-01-03', '{a}', '[2026-01-01,2026-01-02)'),
               ('c', '{}', '', '', '', '2026-01-02', '2026-01-03', NULL, '{b,a}', '[2026-01-02,2026-01-04)')";

    for text in &texts[..12] {
        client.batch_execute(text).await.expect(text);
    }
    client.batch_execute(old).await.expect(old);
    for text in &texts[12..] {
        client.batch_execute(text).await.expect(text);
    }

    let kept = "SELECT name, renamed_to, isempty(pauses) AS none FROM schedules ORDER BY name";
    let rows = client.query(kept, &[]).await.expect(kept);
    let heirs: Vec<Option<String>> = rows.iter().map(|row| row.get("renamed_to")).collect();
    let none: Vec<bool> = rows.iter().map(|row| row.get("none")).collect();
    assert_eq!(heirs, [Some("b".to_owned()), Some("c".to_owned()), None]);
    assert_eq!(none, [true, true, false]);
}

#[tokio::test]
async fn a_database_without_its_schema_is_named_with_the_command_that_mends_it() {
    let database = TestDatabase::empty().await;

    let error = database.store().check_schema().await.expect_err("no schema").to_string();

    assert!(error.contains("version 0") && error.contains("producer migrate"), "{error}");
}
