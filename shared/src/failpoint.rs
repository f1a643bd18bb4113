//! Failpoints: places where a test lets a process die or wait, between two steps that must not depend
//! on each other.
//!
//! Behind the feature `failpoints`; without it [`hit`] is nothing, and no release has it.
//! `BELFRY_FAILPOINT=after_claim:abort` arms one, commas arm several; the action is `abort` or
//! `sleep:MILLISECONDS`, and `once:` before it means the first hit of the process only.

/// All of them, in the order of a task's life.
pub const POINTS: [&str; 12] = [
    "after_enqueue_commit",
    "in_tick",
    "after_publish",
    "before_mark",
    "after_claim",
    "after_effect",
    "after_record",
    "in_retry",
    "in_dead_letter",
    "before_ack",
    "in_rescue",
    "in_replay",
];

/// Nothing: this build has no failpoints.
#[cfg(not(feature = "failpoints"))]
pub fn hit(_point: &'static str) -> std::future::Ready<()> {
    std::future::ready(())
}

#[cfg(feature = "failpoints")]
pub use armed::hit;

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::POINTS;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Action {
        Abort,
        Sleep(Duration),
    }

    #[derive(Debug)]
    struct Armed {
        point: String,
        action: Action,
        once: bool,
        spent: AtomicBool,
    }

    static ARMED: LazyLock<Vec<Armed>> = LazyLock::new(|| {
        #[expect(clippy::disallowed_methods, reason = "no setting of a release: tests arm it")]
        let text = std::env::var("BELFRY_FAILPOINT").unwrap_or_default();
        // A drill whose failpoint is misspelt would prove nothing.
        parse(&text).unwrap_or_else(|what| panic!("BELFRY_FAILPOINT: {what}"))
    });

    /// Does what is armed at this point, if anything.
    pub async fn hit(point: &'static str) {
        debug_assert!(POINTS.contains(&point), "{point} is not in the list");
        for armed in ARMED.iter().filter(|armed| armed.point == point) {
            if armed.once && armed.spent.swap(true, Ordering::SeqCst) {
                continue;
            }
            eprintln!("failpoint {point}: {:?}", armed.action);
            match armed.action {
                Action::Abort => std::process::abort(),
                Action::Sleep(time) => tokio::time::sleep(time).await,
            }
        }
    }

    fn parse(text: &str) -> Result<Vec<Armed>, String> {
        text.split(',')
            .filter(|part| !part.trim().is_empty())
            .map(|part| one(part.trim()))
            .collect()
    }

    fn one(text: &str) -> Result<Armed, String> {
        let (point, rest) =
            text.split_once(':').ok_or_else(|| format!("{text:?} names no action"))?;
        if !POINTS.contains(&point) {
            return Err(format!("no point {point:?}; there are {}", POINTS.join(", ")));
        }
        let (once, rest) = rest.strip_prefix("once:").map_or((false, rest), |rest| (true, rest));
        let action = match rest.split_once(':') {
            None if rest == "abort" => Action::Abort,
            Some(("sleep", time)) => {
                let time =
                    time.parse().map_err(|_| format!("{time:?} is no number of milliseconds"))?;
                Action::Sleep(Duration::from_millis(time))
            }
            _ => return Err(format!("{rest:?} is neither abort nor sleep:MILLISECONDS")),
        };
        Ok(Armed { point: point.to_owned(), action, once, spent: AtomicBool::new(false) })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[track_caller]
        fn check(text: &str, expected: &str) {
            let seen = match parse(text) {
                Ok(all) => {
                    let told = |a: &Armed| format!("{} {:?} {}", a.point, a.action, a.once);
                    all.iter().map(told).collect::<Vec<_>>().join("; ")
                }
                Err(what) => what,
            };
            assert_eq!(seen, expected);
        }

        #[test]
        fn what_is_armed_is_read_and_what_is_misspelt_is_told() {
            check("", "");
            check("after_claim:abort", "after_claim Abort false");
            check(
                "in_tick:once:sleep:50, before_ack:abort",
                "in_tick Sleep(50ms) true; before_ack Abort false",
            );
            check("after_claim", "\"after_claim\" names no action");
            check("after_claim:die", "\"die\" is neither abort nor sleep:MILLISECONDS");
            check("in_tick:sleep:x", "\"x\" is no number of milliseconds");
            assert!(
                parse("nowhere:abort").expect_err("unknown").starts_with("no point \"nowhere\"")
            );
        }
    }
}
