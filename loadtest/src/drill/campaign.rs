//! One seed: load and faults, then healing, then the account.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use shared::broker::Operator;
use tokio::time::{Instant, sleep};

use super::fault::Fault;
use super::field::{Field, until};
use super::house::{POOL, SCHEDULE_NAMES};
use super::invariants::Account;
use super::kept;
use super::load::{self, Load};
use super::recovery::recover;
use super::report::{MeasuredMs, Seed, Strike, millis};
use crate::fleet::Role;
use crate::ledger;

/// Load alone before the first fault and after each recovery, at most: the dice say how much.
const CALM: std::ops::Range<u64> = 500..2000;
/// After the last fault everything that was accepted ends within this: leases, lost messages and
/// their sweeps, twice over.
const HEAL: Duration = Duration::from_secs(90);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// Drills a field; whatever goes wrong stands in the answer.
pub async fn campaign(
    field: &mut Field,
    seed: u64,
    faults: &[&dyn Fault],
    until: Option<Instant>,
) -> Seed {
    let began = Instant::now();
    let mut report = Seed {
        seed,
        ok: false,
        seconds: 0.0,
        strikes: Vec::new(),
        invariants: Vec::new(),
        ledger: None,
        figures: BTreeMap::new(),
        breaches: Vec::new(),
        kept: None,
        log: Vec::new(),
    };
    let load = Load::start(field, seed);
    let mut loses_messages = false;
    for fault in faults {
        if until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        field.calm(CALM).await;
        loses_messages |= fault.loses_messages();
        let strike = strike(field, *fault).await;
        report.breaches.extend(strike.breaches.iter().map(|b| format!("{}: {b}", strike.fault)));
        let recovered = strike.recovery_ms.is_some();
        report.strikes.push(strike);
        // A house that lies on the ground proves nothing about the next blow.
        if !recovered {
            break;
        }
    }
    let told = report.breaches.len();
    field.log.tell("no more faults; healing");
    load.stop().await;
    if let Err(error) = settle(field).await {
        report.breaches.push(format!("healing: {error:#}"));
    }
    if let Err(error) = account(field, &mut report, loses_messages).await {
        report.breaches.push(format!("the account could not be made: {error:#}"));
    }
    report.breaches.extend(field.book.trouble());
    for breach in &report.breaches[told..] {
        field.log.tell(format!("BREACH: {breach}"));
    }
    report.ok = report.breaches.is_empty();
    if !report.ok {
        report.kept =
            kept::keep(field).await.map_err(|error| field.log.tell(format!("{error:#}"))).ok();
    }
    report.seconds = began.elapsed().as_secs_f64();
    report.log = field.log.lines();
    report
}

async fn strike(field: &mut Field, fault: &dyn Fault) -> Strike {
    let name = fault.name();
    field.log.tell(format!("{name}: {}", fault.summary()));
    let mut told = Strike {
        fault: name,
        at_seconds: field.log.seconds(),
        proof: None,
        recovery_ms: None,
        measured: Vec::new(),
        breaches: Vec::new(),
    };
    field.book.broken();
    let since = match fault.strike(field).await {
        Ok(bite) => {
            field.log.tell(format!("{name} bit: {}", bite.proof));
            told.proof = Some(bite.proof);
            told.breaches.extend(bite.broken);
            for m in bite.measured {
                let limit = m.limit * field.pace;
                if m.took > limit {
                    told.breaches
                        .push(format!("{} took {:.1?}, at most {:?}", m.what, m.took, limit));
                }
                let (took_ms, limit_ms) = (millis(m.took), millis(limit));
                told.measured.push(MeasuredMs { what: m.what, took_ms, limit_ms });
            }
            bite.since
        }
        Err(error) => {
            told.breaches.push(format!("no proof that it bit: {error:#}"));
            Instant::now()
        }
    };
    if let Err(error) = heal(field).await {
        told.breaches.push(format!("it cannot be healed: {error:#}"));
        return told;
    }
    match recover(field, since, fault.recovery_limit() * field.pace).await {
        Ok(took) => {
            field.log.tell(format!("{name}: recovered in {:.1} s", took.as_secs_f64()));
            told.recovery_ms = Some(millis(took));
            field.book.whole();
        }
        Err(error) => told.breaches.push(format!("not recovered: {error:#}")),
    }
    for breach in &told.breaches {
        field.log.tell(format!("{name}: BREACH: {breach}"));
    }
    told
}

/// Everything that a fault may have left: links, services, empty posts.
async fn heal(field: &mut Field) -> anyhow::Result<()> {
    field.fleet.pass();
    field.services.up().await?;
    for at in field.fleet.mend(&field.ground)? {
        let name = &field.fleet.posts[at].name;
        field.log.tell(format!("{name} had ended and is replaced"));
    }
    Ok(())
}

/// Heals, and waits until everything that was accepted has ended and is told.
async fn settle(field: &mut Field) -> anyhow::Result<()> {
    heal(field).await?;
    field.fleet.ready().await?;
    field.book.whole();
    let patience = HEAL * field.pace;
    let deadline = Instant::now() + patience;
    until("every request has its task", patience, async || {
        load::send_requests(&field.door, &field.book, &field.rows).await;
        Ok(field.book.open_requests().is_empty().then_some(()))
    })
    .await?;
    // No more ticks, so that there is an end to wait for.
    for name in SCHEDULE_NAMES {
        field.door.store.pause_schedule(name, Some("the drill")).await?;
    }
    let operator = Operator::connect(&field.ground.settings()?).await?;
    let queue = field.ground.topology().pool_queue(POOL);
    let settled = async {
        loop {
            let rows = field.rows.all(include_str!("sql/unsettled.sql"), &[]).await?;
            let row = rows.first().context("an answer")?;
            let (left, what): (i64, String) = (row.get("left"), row.get("what"));
            let waiting = operator.depth(&queue).await?.unwrap_or(0);
            if left == 0 && waiting == 0 {
                return Ok(());
            }
            let late = Instant::now() >= deadline;
            ensure!(!late, "after {patience:?} {what}, {waiting} messages wait");
            sleep(LOOK).await;
        }
    }
    .await;
    operator.close().await;
    settled?;
    field.log.tell("everything has ended");
    // The account is made of a house that stands still, and a healthy one stops when it is told to.
    for role in [Role::Producer, Role::Worker] {
        field.fleet.stop(role).await?;
    }
    Ok(())
}

async fn account(field: &Field, report: &mut Seed, loses_messages: bool) -> anyhow::Result<()> {
    let management = Some(field.services.management().clone());
    let options = ledger::Options { expect_settled: true, management };
    let ledger = ledger::audit(field.ground.config(), &options).await?;
    report.breaches.extend(ledger.broken());
    for row in field.rows.all(include_str!("sql/figures.sql"), &[]).await? {
        report.figures.insert(row.get("what"), row.get("n"));
    }
    let (requests, asked_again) = field.book.requests();
    let mut figure = |name: &str, n: usize| report.figures.insert(name.to_owned(), n as i64);
    figure("requests", requests);
    figure("requests asked again", asked_again as usize);
    figure("model calls", field.stub.calls().len());
    figure("alerts received", field.stub.alerts());
    figure("late results refused", kept::lines_with(field, kept::FENCED)?);
    // Whoever was confirmed by a broker that forgot nothing need not ask again.
    if asked_again > 0 && !loses_messages {
        report.breaches.push(format!("{asked_again} confirmed requests had to be sent again"));
    }
    let checks = ledger.promises.iter().flat_map(|kept| &kept.checks);
    let planned = checks.filter(|check| check.name == "instants").map(|c| c.counted).sum();
    let Field { rows, book, stub, .. } = field;
    report.invariants = Account { rows, book, stub, planned }.make().await?;
    for invariant in report.invariants.iter().filter(|invariant| !invariant.ok) {
        let first = invariant.offenders.first().map_or("", String::as_str);
        report.breaches.push(format!(
            "{} ({} of {}): {first}",
            invariant.name, invariant.violations, invariant.counted
        ));
    }
    report.ledger = Some(ledger);
    Ok(())
}
