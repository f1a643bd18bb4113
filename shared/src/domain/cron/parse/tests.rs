use crate::domain::cron::Cron;

#[track_caller]
fn check(text: &str, reason: &str, message: &str) {
    let error = Cron::parse(text).expect_err(text);
    assert_eq!(error.reason.as_str(), reason, "{text}: {error}");
    let seen = error.to_string();
    assert!(seen.contains(message), "{text}: {seen}");
}

#[test]
fn a_mistake_names_its_field_and_its_mend() {
    check(
        "5/15 * * * *",
        "bad_step",
        "field minute: \"5/15\" is a step after a single value; write 5-59/15",
    );
    check("*/90 * * * *", "bad_step", "field minute: step 90 is above 59");
    check("0 */0 * * *", "bad_step", "field hour: a step of 0");
    check(
        "0 22-2 * * *",
        "reversed_range",
        "field hour: \"22-2\" ends before it begins; write 22-23,0-2",
    );
    check(
        "0 0 * * sat-sun",
        "reversed_range",
        "field day of week: \"sat-sun\" ends before it begins; write 6-7",
    );
    check("0 0 * * fri-mon", "reversed_range", "write 5-6,0-1");
    check("0 0 * * 7-2", "reversed_range", "write 0-2");
    check("60 0 0 * * *", "out_of_range", "field second: 60 is out of range; it takes 0-59");
    check("0 0 * monday *", "bad_name", "field month: \"monday\" is no value; one of jan, feb");
    check("0 0 * * monday", "bad_name", "write mon");
    check("1,,2 * * * *", "bad_list", "remove the extra comma");
    check("0 0 L * *", "quartz_extension", "field day of month");
    check("0 0 * * fri#2", "quartz_extension", "field day of week");
    check("0 0 ? * mon", "quartz_extension", "write *");
    check("H * * * *", "jenkins_hash", "write a number");
    check("*-5 * * * *", "bad_range", "write *, a number, or a-b");
    check("0 0 30 2 *", "never_fires", "field day of month: never fires");
}

#[test]
fn a_mistake_of_the_whole_line_says_so() {
    check("", "empty", "cron expression: it is empty");
    check("* * * *", "wrong_field_count", "4 fields, not 5 or 6");
    check("* * * * * * 2026", "wrong_field_count", "a year field is not supported");
    check("1 , 2 * * * *", "wrong_field_count", "no blanks inside");
    check("daily", "unknown_macro", "write @daily");
    check("@every 5m", "unknown_macro", "intervals as */n");
    check("@reboot", "unknown_macro", "when the machine starts");
    check("TZ=UTC 0 0 * * *", "zone_inside", "`timezone`");
    check("0 0 * * *\n", "bad_character", "one line");
    check("0\u{a0}0 * * *", "bad_character", "plain spaces");
    check(&"0,".repeat(200), "too_long", "400 bytes");
}

#[test]
fn spellings_of_one_line_mean_the_same() {
    let same = [
        ("@DAILY", "0 0 * * *"),
        ("0 0 * * SUN,Mon", "0 0 * * 7,1"),
        ("007 0 * * *", " 7\t0 * * * "),
    ];
    for (one, two) in same {
        let [one, two] = [one, two].map(|text| Cron::parse(text).expect(text));
        assert_eq!(one.line.values, two.line.values);
        assert_ne!(one, two, "the text is the identity");
    }
}
