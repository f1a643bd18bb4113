//! PostgreSQL takes no writes, no connections, no locks, or kills its sessions: nobody's attempt is
//! charged, everybody can see it, and afterwards all slots work again.

use std::time::Duration;

use loadtest::fleet::{Member, Role};
use secrecy::ExposeSecret as _;
use serde_json::json;
use shared::domain::task::{TaskId, TaskState};
use shared::http::Url;
use shared::testing::within;
use tokio::time::{Instant, sleep};

use crate::house::{House, LONG_LEASES, PATIENCE, POOLS, outcomes, probe};

/// Longer than a lease of three seconds.
const BEYOND_THE_LEASE: Duration = Duration::from_secs(5);
const SLOTS: i64 = 4;

/// A house whose processes have a database role of their own, so that something can happen to them and
/// not to us: superusers know no limits.
struct Scene {
    house: House,
    role: String,
    fleet: Vec<Member>,
}

impl Scene {
    async fn open(name: &str) -> Self {
        Self::of(House::open(name, "").await, name).await
    }

    async fn of(mut house: House, name: &str) -> Self {
        let role = format!("belfry_{name}_{}", std::process::id());
        let dsn = house.ground.config().database_url().expect("a database");
        let mut url = Url::parse(dsn.expose_secret()).expect("a URL");
        url.set_username(&role).expect("a host");
        url.set_password(Some("secret")).expect("a host");
        house
            .client
            .batch_execute(&format!(
                "DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN PASSWORD 'secret';
                 GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};
                 GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"
            ))
            .await
            .expect("a role");
        house.ground.tell("DATABASE_URL", String::from(url));
        let fleet = vec![house.started(Role::Producer).await, house.started(Role::Worker).await];
        Self { house, role, fleet }
    }

    /// Says it with the role in the place of ROLE.
    async fn sql(&self, sql: &str) {
        let sql = sql.replace("ROLE_NAME", &self.role);
        self.house.client.batch_execute(&sql).await.expect(&sql);
    }

    /// Ends every session of the processes.
    async fn terminate(&self) {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1";
        self.house.client.execute(sql, &[&self.role]).await.expect(sql);
    }

    async fn ready(&self, ready: bool) {
        for member in &self.fleet {
            let what =
                format!("{} is {}ready", member.role.program(), if ready { "" } else { "un" });
            within(PATIENCE, &what, async || (member.is_ready().await == ready).then_some(()))
                .await;
        }
    }

    async fn running(&self, task: TaskId) -> TaskId {
        self.house.runs(task, 1).await;
        task
    }

    /// As many at once as there are slots, without a failure.
    async fn all_slots_work(&self) {
        let mut tasks = Vec::new();
        for _ in 0..SLOTS {
            tasks.push(self.house.given(probe(json!({"mode": "hang"}))).await);
        }
        let sql = "SELECT count(*) FROM tasks WHERE state = 'running'";
        within(PATIENCE, "all slots work", async || {
            (self.house.count(sql).await == SLOTS).then_some(())
        })
        .await;
        for task in tasks {
            self.house.door.store.cancel(task).await.expect("asked");
            self.house.is(task, TaskState::Cancelled).await;
        }
    }

    async fn close(self) {
        let Self { house, role, fleet } = self;
        let charged = "SELECT count(*) FROM tasks WHERE failures > 0 OR crashes > 0";
        assert_eq!(house.count(charged).await, 0, "somebody was charged");
        let drop_role = format!("DROP OWNED BY {role}; DROP ROLE {role}");
        for member in fleet {
            assert!(member.stop(PATIENCE).await.expect("ended").success());
        }
        house.client.batch_execute(&drop_role).await.expect("dropped");
        house.close(Vec::new()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_takes_no_writes_for_longer_than_a_lease_charges_nobody() {
    let scene = Scene::open("read_only").await;
    let house = &scene.house;
    let hanging = house.given(probe(json!({"mode": "hang", "fail_times": 1}))).await;
    let hanging = scene.running(hanging).await;
    let ending = scene.running(house.given(probe(json!({"sleep_ms": 1000}))).await).await;

    scene.sql("ALTER ROLE ROLE_NAME SET default_transaction_read_only = on").await;
    scene.terminate().await;
    scene.ready(false).await;
    let waiting = house.given(probe(json!({}))).await;
    sleep(BEYOND_THE_LEASE).await; // time itself is under test
    assert_eq!(house.row(ending).await.summary.state, TaskState::Running, "nothing was written");
    scene.sql("ALTER ROLE ROLE_NAME RESET default_transaction_read_only").await;
    scene.ready(true).await;

    // What had ended is recorded and not done again; what was stopped with its lease is released.
    let row = house.is(ending, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["completed"]);
    let row = house.is(hanging, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["released", "completed"]);
    house.is(waiting, TaskState::Completed).await;
    scene.all_slots_work().await;
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_a_free_connection_charges_nobody() {
    let scene = Scene::open("exhausted").await;
    let house = &scene.house;
    let ending = scene.running(house.given(probe(json!({"sleep_ms": 1000}))).await).await;

    scene.sql("ALTER ROLE ROLE_NAME CONNECTION LIMIT 0").await;
    scene.terminate().await;
    scene.ready(false).await;
    let waiting = house.given(probe(json!({}))).await;
    scene.sql("ALTER ROLE ROLE_NAME CONNECTION LIMIT -1").await;
    scene.ready(true).await;

    let row = house.is(ending, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["completed"]);
    house.is(waiting, TaskState::Completed).await;
    scene.all_slots_work().await;
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_somebody_has_locked_charges_nobody() {
    let scene = Scene::open("locked").await;
    let house = &scene.house;
    let ending = scene.running(house.given(probe(json!({"sleep_ms": 1000}))).await).await;
    let waiting = house.given(probe(json!({"sleep_ms": 1}))).await;
    house.is(waiting, TaskState::Completed).await;

    scene.sql("BEGIN; LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE").await;
    scene.ready(false).await;
    scene.sql("COMMIT").await;
    scene.ready(true).await;

    // The lock may have lasted longer than the wait for it, and even so it is only repeated.
    let row = house.is(ending, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["completed"]);
    scene.all_slots_work().await;
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_killed_again_and_again_charge_nobody() {
    let house = House::over("terminated", &format!("{LONG_LEASES}{POOLS}")).await;
    let scene = Scene::of(house, "terminated").await;
    let house = &scene.house;
    let until = Instant::now() + Duration::from_secs(4);
    let mut tasks = Vec::new();

    while Instant::now() < until {
        tasks.push(house.given(probe(json!({"sleep_ms": 150}))).await);
        scene.terminate().await;
        sleep(Duration::from_millis(200)).await; // time itself is under test
    }

    for task in tasks {
        let row = house.is(task, TaskState::Completed).await;
        assert_eq!(outcomes(&row).last(), Some(&"completed"));
    }
    scene.ready(true).await;
    scene.all_slots_work().await;
    scene.close().await;
}
