//! The file of the run: entries as people write them, each with a payload of its own.

use std::fmt::Write as _;

use super::SchedulesOptions;

/// Seconds of a day, over which the entries that are not due together are spread.
const DAY: usize = 86_400;

/// Pool and schedules.
pub(super) fn of(options: &SchedulesOptions) -> String {
    let mut yaml =
        String::from("task_pools:\n  bench: {max_workers: 1, task_types: [probe]}\ntasks:\n");
    entry(&mut yaml, "beat", "* * * * * *");
    for n in 0..options.due {
        entry(&mut yaml, &format!("due_{n}"), "*/10 * * * * *");
    }
    let spread = options.count - options.due - 1;
    for n in 0..spread {
        let second = n * DAY / spread;
        let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
        entry(&mut yaml, &format!("daily_{n}"), &format!("{s} {m} {h} * * *"));
    }
    yaml
}

fn entry(yaml: &mut String, name: &str, schedule: &str) {
    // A queue that nobody reads must not hold up the next tick.
    let _ = write!(
        yaml,
        "  - name: {name}\n    schedule: \"{schedule}\"\n    task_type: probe\n    payload:\n      \
         echo: \"the input of {name}\"\n    overlap: allow\n    timeout: 1m\n"
    );
}

#[cfg(test)]
mod tests {
    use shared::config;

    use super::*;

    #[test]
    fn the_file_is_right_and_has_as_many_entries_as_asked_for() {
        let options = SchedulesOptions {
            count: 500,
            due: 20,
            bursts: 1,
            limit: std::time::Duration::ZERO,
            json: false,
        };

        let config = config::load_str(&of(&options), "b.yaml", &|_| None).expect("right");

        assert_eq!(config.schedules.len(), 500);
        assert_eq!(config.schedules[499].cron.as_str(), "59 56 23 * * *");
    }
}
