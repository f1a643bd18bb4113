use super::*;

const NOW: &str = "2026-11-30T12:00:30Z";

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

fn schedule(cron: &str, catch_up: CatchUp) -> Schedule {
    let cron = Cron::parse(cron).expect("a valid line");
    Schedule { catch_up, ..Schedule::new("order_sync", cron, "http_call", "io_pool") }
}

/// Tells a plan: `+` runs, `-` is missed, `(n)` are counted before them.
fn told(plan: &Plan) -> String {
    let tick = |t: &PlannedTick| format!("{}{}", if t.run { '+' } else { '-' }, t.at.format("%T"));
    let older = plan.older.map(|older| format!("({})", older.count));
    older.into_iter().chain(plan.ticks.iter().map(tick)).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(cron: &str, catch_up: CatchUp, mark: &str, now: &str, expected: &str) {
    let plan = schedule(cron, catch_up).plan(at(mark), at(now));
    assert_eq!(told(&plan), expected, "{cron} {catch_up:?}");
    assert_eq!(plan.new_mark, at(now));
}

#[test]
fn a_tick_that_is_just_due_runs_whatever_the_policy() {
    for policy in [CatchUp::Latest, CatchUp::All, CatchUp::None] {
        let (mark, due) = ("2026-11-30T11:59:30Z", "+12:00:00");
        check("* * * * *", policy, mark, "2026-11-30T12:00:00Z", due);
        check("* * * * *", policy, mark, "2026-11-30T12:00:04.9Z", due);
        check("* * * * *", policy, mark, "2026-11-30T11:59:59.9Z", "");
        check("* * * * *", policy, "2026-11-30T12:00:00Z", "2026-11-30T12:00:04Z", "");
    }
}

#[test]
fn every_policy_judges_the_missed_ticks() {
    let mark = "2026-11-30T11:57:30Z";
    check("* * * * *", CatchUp::Latest, mark, NOW, "-11:58:00 -11:59:00 +12:00:00");
    check("* * * * *", CatchUp::All, mark, NOW, "+11:58:00 +11:59:00 +12:00:00");
    check("* * * * *", CatchUp::None, mark, NOW, "-11:58:00 -11:59:00 -12:00:00");
}

#[test]
fn the_latest_gives_way_to_a_tick_that_is_just_due() {
    let (mark, now) = ("2026-11-30T11:57:30Z", "2026-11-30T12:00:02Z");
    check("* * * * *", CatchUp::Latest, mark, now, "-11:58:00 -11:59:00 +12:00:00");
    check("* * * * *", CatchUp::All, mark, now, "+11:58:00 +11:59:00 +12:00:00");
    check("* * * * *", CatchUp::None, mark, now, "-11:58:00 -11:59:00 +12:00:00");
}

#[test]
fn a_span_is_cut_where_asked_and_no_instant_is_lost() {
    let beat = schedule("*/10 * * * *", CatchUp::None);
    let span = MissedSpan {
        first: at("2026-11-30T10:00:00Z"),
        last: at("2026-11-30T11:00:00Z"),
        count: 7,
    };
    let cut = |cuts: &[&str]| {
        let cuts: Vec<_> = cuts.iter().map(|cut| at(&format!("2026-11-30T{cut}Z"))).collect();
        let told = |part: MissedSpan| {
            format!("{}-{} {}", part.first.format("%R"), part.last.format("%R"), part.count)
        };
        beat.cut(span, &cuts).into_iter().map(told).collect::<Vec<_>>().join(", ")
    };

    assert_eq!(cut(&[]), "10:00-11:00 7");
    assert_eq!(cut(&["09:00:00", "10:00:00", "11:00:01"]), "10:00-11:00 7");
    assert_eq!(cut(&["10:20:00", "10:30:01"]), "10:00-10:10 2, 10:20-10:30 2, 10:40-11:00 3");
    assert_eq!(cut(&["10:21:00", "10:29:00"]), "10:00-10:20 3, 10:30-11:00 4", "none between");
    assert_eq!(cut(&["11:00:00"]), "10:00-10:50 6, 11:00-11:00 1");
}

#[test]
fn nothing_older_than_the_window_runs() {
    let mark = "2026-11-30T09:10:00Z";
    check("0 * * * *", CatchUp::All, mark, NOW, "-10:00:00 -11:00:00 +12:00:00");
    check("0 10 * * *", CatchUp::Latest, mark, NOW, "-10:00:00");
    check("30 11 * * *", CatchUp::Latest, mark, NOW, "+11:30:00");
    check("0 11 * * *", CatchUp::All, mark, "2026-11-30T12:00:00Z", "+11:00:00");
    check("0 11 * * *", CatchUp::All, mark, "2026-11-30T12:00:00.1Z", "-11:00:00");
}

#[test]
fn beyond_a_hundred_missed_ticks_one_span_counts_the_rest() {
    let plan = schedule("* * * * *", CatchUp::All).plan(at("2026-11-30T06:00:00Z"), at(NOW));
    assert_eq!(plan.ticks.len(), MISSED_ROWS);
    assert_eq!(plan.ticks[0].at, at("2026-11-30T10:21:00Z"));
    assert_eq!(plan.ticks.iter().filter(|tick| tick.run).count(), 60, "the window holds an hour");
    let expected = MissedSpan {
        first: at("2026-11-30T06:01:00Z"),
        last: at("2026-11-30T10:20:00Z"),
        count: 260,
    };
    assert_eq!(plan.older, Some(expected));
    // A hundred and one: the span begins where the rows end.
    let plan = schedule("* * * * *", CatchUp::None).plan(at("2026-11-30T10:19:30Z"), at(NOW));
    assert_eq!(plan.older.map(|o| (o.first == o.last, o.count)), Some((true, 1)));
    let plan = schedule("* * * * *", CatchUp::None).plan(at("2026-11-30T10:20:30Z"), at(NOW));
    assert_eq!((plan.older, plan.ticks.len()), (None, MISSED_ROWS));
}

/// An apply leaves a mark between two seconds, and an outage soon after it begins there.
#[test]
fn a_mark_with_a_fraction_has_the_plan_of_its_second() {
    let every_second = schedule("* * * * * *", CatchUp::All);
    for seconds in 100..180 {
        let mark = at(NOW) - TimeDelta::seconds(seconds);
        let plan = every_second.plan(mark + TimeDelta::milliseconds(601), at(NOW));
        assert_eq!(plan, every_second.plan(mark, at(NOW)), "{seconds} s after the apply");
    }
}

#[test]
fn a_week_of_every_second_is_planned_at_once() {
    let begun = std::time::Instant::now();
    let plan = schedule("* * * * * *", CatchUp::Latest).plan(at("2026-11-23T12:00:30Z"), at(NOW));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let counted = plan.older.expect("a span").count;
    assert_eq!(counted + plan.ticks.len() as u64, 7 * 86_400);
    assert_eq!(plan.ticks.iter().filter(|tick| tick.run).count(), 5, "only those just due");
}

#[test]
fn plans_that_follow_each_other_hold_every_instant_once() {
    let schedule = schedule("*/7 * * * * *", CatchUp::Latest);
    let (start, end) = (at("2026-11-30T11:00:00Z"), at("2026-11-30T13:00:00Z"));
    let (mut mark, mut step, mut seen) = (start, 1, Vec::new());
    while mark < end {
        // Uneven steps, some with an outage and some backwards.
        let now = if step % 5 == 0 {
            mark - TimeDelta::seconds(9)
        } else {
            mark + TimeDelta::milliseconds(step * 731)
        };
        let plan = schedule.plan(mark, now);
        assert!(plan.new_mark >= mark && plan.older.is_none());
        seen.extend(plan.ticks.into_iter().map(|tick| tick.at));
        (mark, step) = (plan.new_mark, step + 1);
    }
    assert_eq!(seen, schedule.instants(start, mark));
}

#[test]
fn a_clock_set_back_plans_nothing_and_keeps_the_mark() {
    let plan = schedule("* * * * *", CatchUp::All).plan(at(NOW), at("2026-11-30T11:00:00Z"));
    assert_eq!(plan, Plan { ticks: vec![], older: None, new_mark: at(NOW) });
}

#[test]
fn the_previous_instant_is_found_backwards() {
    let schedule = schedule("0 18 * * *", CatchUp::Latest);
    let day = at("2026-11-30T18:00:00Z");
    let since = day - TimeDelta::days(400);
    assert_eq!(schedule.previous(day, since), Some(at("2026-11-29T18:00:00Z")));
    assert_eq!(schedule.previous(day, at("2026-11-29T18:00:00Z")), None);
    assert_eq!(schedule.next_due(day), Some(at("2026-12-01T18:00:00Z")));
}

#[track_caller]
fn check_bounds(bounds: (Option<&str>, Option<&str>), mark: &str, now: &str, expected: &str) {
    let (start_at, end_at) = (bounds.0.map(at), bounds.1.map(at));
    let schedule = Schedule { start_at, end_at, ..schedule("*/10 * * * *", CatchUp::All) };
    let plan = schedule.plan(at(mark), at(now));
    assert_eq!(told(&plan), expected, "{bounds:?}");
    assert_eq!(plan.new_mark, at(now));
}

#[test]
fn nothing_outside_start_and_end_is_planned() {
    let (mark, now) = ("2026-11-30T11:15:00Z", NOW);
    check_bounds((None, None), mark, now, "+11:20:00 +11:30:00 +11:40:00 +11:50:00 +12:00:00");
    let start = Some("2026-11-30T11:40:00Z");
    check_bounds((start, None), mark, now, "+11:40:00 +11:50:00 +12:00:00");
    check_bounds((Some("2026-11-30T11:40:00.5Z"), None), mark, now, "+11:50:00 +12:00:00");
    let end = Some("2026-11-30T11:40:00Z");
    check_bounds((None, end), mark, now, "+11:20:00 +11:30:00 +11:40:00");
    check_bounds((None, end), "2026-11-30T11:40:00Z", now, "");
    check_bounds((start, end), mark, now, "+11:40:00");
    check_bounds((Some("2026-12-01T00:00:00Z"), None), mark, now, "");
    // Just due at the end: it runs whatever the policy.
    let schedule = Schedule { end_at: Some(at(NOW)), ..schedule("30 * * * * *", CatchUp::None) };
    let plan = schedule.plan(at("2026-11-30T12:00:29Z"), at("2026-11-30T12:00:31Z"));
    assert_eq!(told(&plan), "+12:00:30");
}

#[test]
fn a_long_outage_before_the_end_is_counted_up_to_it() {
    let end_at = Some(at("2026-11-30T06:59:30Z"));
    let schedule = Schedule { end_at, ..schedule("* * * * *", CatchUp::Latest) };

    let plan = schedule.plan(at("2026-11-30T04:00:00Z"), at(NOW));

    assert_eq!(plan.ticks.len(), MISSED_ROWS);
    assert_eq!(plan.ticks.last().map(|tick| tick.at), Some(at("2026-11-30T06:59:00Z")));
    let first = at("2026-11-30T04:01:00Z");
    let last = at("2026-11-30T05:19:00Z");
    assert_eq!(plan.older, Some(MissedSpan { first, last, count: 79 }));
}

#[test]
fn next_and_previous_keep_within_the_bounds_and_an_end_is_told() {
    let (start, end) = (at("2026-11-30T18:00:00Z"), at("2026-12-02T18:00:00Z"));
    let bounded = Schedule {
        start_at: Some(start),
        end_at: Some(end),
        ..schedule("0 18 * * *", CatchUp::Latest)
    };
    let day = |day: u32| at(&format!("2026-12-{day:02}T18:00:00Z"));

    assert_eq!(bounded.next_due(at("2020-01-01T00:00:00Z")), Some(start));
    assert_eq!(bounded.next_due(day(1)), Some(end));
    assert_eq!(bounded.next_due(end), None);
    assert_eq!(bounded.previous(start, at("2020-01-01T00:00:00Z")), None);
    assert_eq!(bounded.previous(day(9), at("2020-01-01T00:00:00Z")), Some(end));
    assert!(bounded.has_ended(end) && !bounded.has_ended(day(1)));
    assert!(!schedule("0 18 * * *", CatchUp::Latest).has_ended(end));
}

/// The numbers are a promise: a version that gave others would move every task of a fleet.
#[test]
fn a_delay_is_below_the_jitter_and_the_same_for_ever() {
    let named = |name: &str, jitter: u64| Schedule {
        name: name.to_owned(),
        jitter: Duration::from_secs(jitter),
        ..schedule("0 18 * * *", CatchUp::Latest)
    };
    assert_eq!(named("order_sync", 0).delay(), Duration::ZERO);
    assert_eq!(named("order_sync", 600).delay(), Duration::from_millis(316_803));
    let delays: Vec<Duration> = (0..1000).map(|n| named(&format!("s{n}"), 60).delay()).collect();
    assert!(delays.iter().all(|delay| *delay < Duration::from_secs(60)));
    let early = delays.iter().filter(|delay| **delay < Duration::from_secs(30)).count();
    assert!((400..600).contains(&early), "{early} of 1000 in the first half");
}

#[test]
fn what_is_late_and_undecided_is_counted_from_the_oldest() {
    let overdue = |cron: &str, mark: &str| {
        let late = schedule(cron, CatchUp::Latest).overdue(at(mark), at(NOW))?;
        Some((late.first.format("%T").to_string(), late.count))
    };
    assert_eq!(overdue("* * * * *", "2026-11-30T11:35:00Z"), Some(("11:36:00".to_owned(), 25)));
    assert_eq!(overdue("* * * * *", "2026-11-29T12:00:30Z"), Some(("12:01:00".to_owned(), 1440)));
    assert_eq!(overdue("* * * * *", "2026-11-30T12:00:00Z"), None);
    // As long as a busy database takes, it is no trouble.
    assert_eq!(overdue("25 0 12 * * *", "2026-11-30T11:00:00Z"), Some(("12:00:25".to_owned(), 1)));
    assert_eq!(overdue("26 0 12 * * *", "2026-11-30T11:00:00Z"), None);
}
