//! What a drill found: the fault log with proofs and recovery times, the account, the ledger.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::invariants::Invariant;
use super::log::Line;
use crate::ledger::Ledger;
use crate::report;

/// A fault that struck. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct Strike {
    /// Which fault.
    pub fault: &'static str,
    /// Seconds since the drill began.
    pub at_seconds: f64,
    /// Why it is known that it bit; `None` for one that missed.
    pub proof: Option<String>,
    /// Milliseconds until new work was done and every member ready.
    pub recovery_ms: Option<u64>,
    /// Other times that the contract names.
    pub measured: Vec<MeasuredMs>,
    /// What should not be: no proof, no recovery, a time beyond its limit.
    pub breaches: Vec<String>,
}

/// A measured time. JSON: `{"what","took_ms","limit_ms"}`.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredMs {
    /// Of what.
    pub what: &'static str,
    /// How long it took.
    pub took_ms: u64,
    /// Longer is a breach.
    pub limit_ms: u64,
}

/// One seed. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct Seed {
    /// Its number.
    pub seed: u64,
    /// Nothing is broken.
    pub ok: bool,
    /// Seconds from the first member's start to the end of the account.
    pub seconds: f64,
    /// Faults, in order.
    pub strikes: Vec<Strike>,
    /// The drill's own account; empty when it could not be made.
    pub invariants: Vec<Invariant>,
    /// The house's promises; `None` when nobody could be asked.
    pub ledger: Option<Ledger>,
    /// What it amounted to, by name.
    pub figures: BTreeMap<String, i64>,
    /// Everything that is broken, in words.
    pub breaches: Vec<String>,
    /// Where logs and rows are kept, of a seed that broke something.
    pub kept: Option<PathBuf>,
    /// The story.
    pub log: Vec<Line>,
}

/// All of it. JSON: `{"ok","seeds","recovery","unavailable"}`.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// Nothing is broken.
    pub ok: bool,
    /// Seed by seed.
    pub seeds: Vec<Seed>,
    /// Recovery times by fault.
    pub recovery: Vec<Recovery>,
    /// Faults that cannot be inflicted here, and why.
    pub unavailable: BTreeMap<&'static str, String>,
}

/// Recovery times of one fault. JSON: one object with these keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// Which fault.
    pub fault: &'static str,
    /// How often it struck.
    pub strikes: usize,
    /// Of those, how often without a breach.
    pub survived: usize,
    /// Shortest, in milliseconds; `None` when there was none.
    pub min_ms: Option<u64>,
    /// The one in the middle.
    pub median_ms: Option<u64>,
    /// Longest.
    pub max_ms: Option<u64>,
}

impl Document {
    /// Of these seeds.
    pub fn of(seeds: Vec<Seed>, unavailable: BTreeMap<&'static str, String>) -> Self {
        let ok = seeds.iter().all(|seed| seed.ok);
        let recovery = recovery(seeds.iter().flat_map(|seed| &seed.strikes));
        Self { ok, seeds, recovery, unavailable }
    }

    /// What is broken, in one line; `None` when nothing is.
    pub fn broken(&self) -> Option<String> {
        let broken: Vec<String> = self
            .seeds
            .iter()
            .filter(|seed| !seed.ok)
            .map(|seed| format!("seed {}: {}", seed.seed, seed.breaches.join("; ")))
            .collect();
        (!broken.is_empty()).then(|| broken.join("\n"))
    }
}

fn recovery<'a>(strikes: impl Iterator<Item = &'a Strike>) -> Vec<Recovery> {
    let mut by_fault: BTreeMap<&'static str, Vec<&Strike>> = BTreeMap::new();
    for strike in strikes {
        by_fault.entry(strike.fault).or_default().push(strike);
    }
    by_fault
        .into_iter()
        .map(|(fault, strikes)| {
            let mut times: Vec<u64> = strikes.iter().filter_map(|s| s.recovery_ms).collect();
            times.sort_unstable();
            Recovery {
                fault,
                strikes: strikes.len(),
                survived: strikes.iter().filter(|strike| strike.breaches.is_empty()).count(),
                min_ms: times.first().copied(),
                median_ms: times.get(times.len().saturating_sub(1) / 2).copied(),
                max_ms: times.last().copied(),
            }
        })
        .collect()
}

/// For people.
pub fn render(document: &Document) -> String {
    let mut text = String::new();
    for seed in &document.seeds {
        render_seed(&mut text, seed);
    }
    let _ = writeln!(text, "\nrecovery, in seconds      strikes  survived    min  median     max");
    for row in &document.recovery {
        let second =
            |ms: Option<u64>| ms.map_or("-".to_owned(), |ms| format!("{:.1}", seconds(ms)));
        let _ = writeln!(
            text,
            "{:<24}  {:>7}  {:>8}  {:>5}  {:>6}  {:>6}",
            row.fault,
            row.strikes,
            row.survived,
            second(row.min_ms),
            second(row.median_ms),
            second(row.max_ms)
        );
    }
    for (fault, why) in &document.unavailable {
        let _ = writeln!(text, "NOT RUN: {fault}: {why}");
    }
    if document.seeds.len() > 1 {
        let _ = writeln!(text, "\nseed          faults  tasks  attempts  seconds");
        for seed in &document.seeds {
            let figure = |name: &str| seed.figures.get(name).copied().unwrap_or_default();
            let _ = writeln!(
                text,
                "{:<12}  {:>6}  {:>5}  {:>8}  {:>7.0}  {}",
                seed.seed,
                seed.strikes.len(),
                figure("tasks"),
                figure("attempts"),
                seed.seconds,
                verdict(seed.ok)
            );
        }
    }
    text
}

fn render_seed(text: &mut String, seed: &Seed) {
    let _ = writeln!(text, "\nseed {}: {} in {:.0} s\n", seed.seed, verdict(seed.ok), seed.seconds);
    for strike in &seed.strikes {
        let recovered = match strike.recovery_ms {
            Some(ms) => format!("recovered in {:.1} s", seconds(ms)),
            None => "not recovered".to_owned(),
        };
        let proof = strike.proof.as_deref().unwrap_or("no proof that it bit");
        let _ = writeln!(
            text,
            "{:7.1} s  {:<24}  {recovered}; {proof}",
            strike.at_seconds, strike.fault
        );
        for m in &strike.measured {
            let (took, limit) = (seconds(m.took_ms), seconds(m.limit_ms));
            let _ = writeln!(text, "{:36} {}: {took:.1} s (at most {limit:.0} s)", "", m.what);
        }
    }
    let _ = writeln!(text);
    for invariant in &seed.invariants {
        let _ = writeln!(
            text,
            "{:<10} {:>6}  {:>4} broken   {}",
            invariant.name, invariant.counted, invariant.violations, invariant.says
        );
        for offender in &invariant.offenders {
            let _ = writeln!(text, "           {offender}");
        }
    }
    if let Some(ledger) = &seed.ledger {
        // All promises at length only where one is broken.
        if ledger.ok {
            let checks: usize = ledger.promises.iter().map(|kept| kept.checks.len()).sum();
            let promises = ledger.promises.len();
            let _ = writeln!(text, "ledger     {promises} promises in {checks} checks, all kept");
        } else {
            text.push_str(&report::ledger(ledger));
        }
    }
    let figures: Vec<String> = seed.figures.iter().map(|(name, n)| format!("{name} {n}")).collect();
    let _ = writeln!(text, "figures    {}", figures.join(", "));
    for breach in &seed.breaches {
        let _ = writeln!(text, "BREACH     {breach}");
    }
    if let Some(kept) = &seed.kept {
        let _ = writeln!(text, "kept       logs and rows are in {}", kept.display());
    }
}

/// Whole milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

fn verdict(ok: bool) -> &'static str {
    if ok { "ok" } else { "BROKEN" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strike(fault: &'static str, recovery_ms: Option<u64>) -> Strike {
        let breaches =
            if recovery_ms.is_none() { vec!["not recovered".to_owned()] } else { Vec::new() };
        let proof = Some("a pid is gone".to_owned());
        Strike { fault, at_seconds: 1.0, proof, recovery_ms, measured: Vec::new(), breaches }
    }

    fn seed(number: u64, strikes: Vec<Strike>) -> Seed {
        let breaches: Vec<String> = strikes.iter().flat_map(|s| s.breaches.clone()).collect();
        Seed {
            seed: number,
            ok: breaches.is_empty(),
            seconds: 60.0,
            strikes,
            invariants: Vec::new(),
            ledger: None,
            figures: BTreeMap::from([("tasks".to_owned(), 7)]),
            breaches,
            kept: None,
            log: Vec::new(),
        }
    }

    #[test]
    fn recovery_is_shortest_middle_and_longest_over_all_seeds() {
        let seeds = vec![
            seed(1, vec![strike("b", Some(900)), strike("a", Some(5))]),
            seed(2, vec![strike("b", Some(100)), strike("b", Some(300)), strike("c", None)]),
        ];

        let document = Document::of(seeds, BTreeMap::from([("d", "no root".to_owned())]));

        let of = |fault, strikes, survived, min, median, max| Recovery {
            fault,
            strikes,
            survived,
            min_ms: min,
            median_ms: median,
            max_ms: max,
        };
        let expected = [
            of("a", 1, 1, Some(5), Some(5), Some(5)),
            of("b", 3, 3, Some(100), Some(300), Some(900)),
            of("c", 1, 0, None, None, None),
        ];
        assert_eq!(document.recovery, expected);
        assert!(!document.ok);
        assert_eq!(document.broken().as_deref(), Some("seed 2: not recovered"));
        let text = render(&document);
        for part in
            ["seed 1: ok", "seed 2: BROKEN", "BREACH     not recovered", "NOT RUN: d: no root"]
        {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn a_drill_without_a_breach_is_not_broken() {
        let document = Document::of(vec![seed(1, vec![strike("a", Some(1))])], BTreeMap::new());
        assert!(document.ok && document.broken().is_none());
        assert!(!render(&document).contains("BREACH"));
    }
}
