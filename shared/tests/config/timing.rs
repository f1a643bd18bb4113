//! What a schedule says of time, priority and former names, and what is refused of it.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use shared::domain::task::Priority;

use super::{check, loaded, task};

#[test]
fn what_a_schedule_says_of_time_is_read() {
    let text = task(
        "  jitter: 45s\n  start_at: 2026-12-01T09:00:00+08:00\n  end_at: '2026-12-31T00:00:00Z'\n  \
         deadline: 2m\n  priority: HIGH\n  renamed_from: b\n",
    );

    let config = loaded(&text, &[]);

    let entry = &config.schedules[0];
    let bounds = [entry.start_at, entry.end_at].map(|at| at.map(|at| at.to_rfc3339()));
    assert_eq!(
        bounds.each_ref().map(Option::as_deref),
        [Some("2026-12-01T01:00:00+00:00"), Some("2026-12-31T00:00:00+00:00")]
    );
    assert_eq!(entry.jitter, Duration::from_secs(45));
    assert_eq!(entry.deadline, Some(Duration::from_secs(120)));
    assert_eq!((entry.priority, entry.renamed_from.as_deref()), (Priority::High, Some("b")));
    let plain = &loaded(&task(""), &[]).schedules[0];
    assert_eq!((plain.jitter, plain.deadline), (Duration::ZERO, None));
}

#[test]
fn what_cannot_be_is_refused_where_it_stands() {
    for (lines, expected) in [
        (
            "  jitter: 1m\n",
            "belfry.yaml:5: tasks[0].jitter: must be shorter than 60s, the shortest time between two",
        ),
        (
            "  jitter: 30s\n  deadline: 30s\n",
            "belfry.yaml:6: tasks[0].deadline: must be longer than jitter (30s)",
        ),
        ("  deadline: 0\n", "belfry.yaml:5: tasks[0].deadline: must be longer than 0"),
        (
            "  start_at: tomorrow\n",
            "belfry.yaml:5: tasks[0].start_at: expected an instant with its offset, such as 2026-12-01T09:00:00+08:00",
        ),
        (
            "  end_at: 2026-12-01T09:00:00\n",
            "belfry.yaml:5: tasks[0].end_at: expected an instant with its offset",
        ),
        (
            "  start_at: 2026-12-02T00:00:00Z\n  end_at: 2026-12-01T00:00:00Z\n",
            "belfry.yaml:6: tasks[0].end_at: is before start_at",
        ),
        (
            "  start_at: 2026-12-01T00:00:01Z\n  end_at: 2026-12-01T00:00:59Z\n",
            "belfry.yaml:6: tasks[0].end_at: no instant of `schedule` lies between",
        ),
        (
            "  priority: 9\n",
            "belfry.yaml:5: tasks[0].priority: unknown value, found \"9\"; known: low, normal, high",
        ),
        (
            "  startingDeadlineSeconds: 9\n",
            "belfry.yaml:5: tasks[0].startingDeadlineSeconds: unknown key; did you mean `deadline`?",
        ),
        (
            "  renamed_from: a\n",
            "belfry.yaml:5: tasks[0].renamed_from: a is still the name of a schedule, on line 2",
        ),
        ("  renamed_from: ''\n", "belfry.yaml:5: tasks[0].renamed_from: must not be empty"),
    ] {
        check(&task(lines), &[expected]);
    }
}

#[test]
fn one_name_goes_on_as_one_schedule() {
    let entry = |name: &str| {
        format!("- {{name: {name}, schedule: '@daily', task_type: http_call, renamed_from: old}}\n")
    };
    let text = format!("tasks:\n{}{}", entry("a"), entry("b"));

    check(&text, &["belfry.yaml:3: tasks[1].renamed_from: old was renamed on line 2 already"]);
}

/// The figures of a release are in the benchmark; this only refuses what grows with the square.
#[test]
fn a_file_of_many_schedules_is_read_in_seconds() {
    let mut text = String::from("tasks:\n");
    for n in 0..20_000 {
        let (m, h) = (n % 60, n / 60 % 24);
        let _ = write!(
            text,
            "- name: s{n}\n  schedule: '{m} {h} * * *'\n  task_type: http_call\n  \
             execution_key_template: 's{n}_{{{{ scheduled_date }}}}'\n"
        );
    }
    let begun = Instant::now();

    let config = loaded(&text, &[]);

    assert_eq!(config.schedules.len(), 20_000);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
