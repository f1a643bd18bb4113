use super::*;

fn tick(at: &str, zone: &str) -> TickContext<'static> {
    TickContext {
        schedule: "order_sync",
        at: at.parse().expect("an instant"),
        timezone: zone.parse().expect("a zone"),
        previous: Some("2026-11-29T18:00:00Z".parse().expect("an instant")),
    }
}

#[track_caller]
fn check_key(template: &str, expected: &str) {
    let seen = match render_key(template, &tick("2026-11-30T18:00:00Z", "Asia/Shanghai")) {
        Ok(key) => key.to_string(),
        Err(error) => error.to_string(),
    };
    assert!(
        if expected.ends_with('…') {
            seen.starts_with(expected.trim_end_matches('…'))
        } else {
            seen == expected
        },
        "{template}: {seen}"
    );
}

#[test]
fn keys_are_told_in_the_zone_of_the_schedule() {
    check_key("order_sync_{{ scheduled_date }}", "order_sync_2026-12-01");
    check_key(DEFAULT_KEY_TEMPLATE, "order_sync@2026-12-01T02:00:00+08:00");
    check_key("{{ previous_at }}", "2026-11-30T02:00:00+08:00");
    check_key("{{ schedule | upper }}-{{ scheduled_date[:7] }}", "ORDER_SYNC-2026-12");
    check_key("no variables", "no variables");
}

#[test]
fn the_spelling_of_go_is_understood() {
    check_key("stock_sync_{{ .ScheduledDate }}", "stock_sync_2026-12-01");
    check_key("{{.Schedule}}@{{- .ScheduledAt -}}", "order_sync@2026-12-01T02:00:00+08:00");
    check_key(
        "{{ .PreviousAt|replace('.Schedule', 'x') }}.Schedule",
        "2026-11-30T02:00:00+08:00.Schedule",
    );
    check_key(
        "{{ .ScheduledTime }}",
        "template: unknown variable \".ScheduledTime\"; known are .Schedule, …",
    );
}

#[test]
fn what_cannot_be_a_key_is_refused() {
    check_key(
        "{{ scheduled_dat }}",
        "template: unknown variable \"scheduled_dat\"; did you mean scheduled_date?",
    );
    check_key("{{ order_id }}", "template: unknown variable \"order_id\"; known are schedule, …");
    check_key("{{ schedule", "template: syntax error…");
    check_key("{{ schedule | nosuch }}", "template: unknown filter…");
    check_key("{{ schedule.name }}", "template: undefined value…");
    check_key("{{ schedule * 30 }}", "template: the result is longer than 255 bytes");
    check_key("{% for x in range(99999) %}{% endfor %}a", "template: it takes too much work…");
    check_key("{{ '' }}", "template: an execution key must not be empty");
    check_key("a\n{{ schedule }}", "template: an execution key must be printable…");
}

#[test]
fn the_repeated_hour_of_autumn_stays_two_instants() {
    let key = |at| render_key(DEFAULT_KEY_TEMPLATE, &tick(at, "Europe/Berlin")).expect("a key");
    let (first, second) = (key("2026-10-25T00:30:00Z"), key("2026-10-25T01:30:00Z"));
    assert_eq!(first.as_str(), "order_sync@2026-10-25T02:30:00+02:00");
    assert_eq!(second.as_str(), "order_sync@2026-10-25T02:30:00+01:00");
}

#[test]
fn a_template_is_checked_before_its_first_tick() {
    assert!(check(DEFAULT_KEY_TEMPLATE).is_ok());
    assert!(check("{{ .ScheduledDate }}").is_ok());
    assert!(check("{{ date }}").is_err());
    // The first tick has no previous one, and an empty key is none.
    assert!(check("{{ previous_at }}").is_err());
}

#[test]
fn only_the_strings_of_a_payload_are_rendered() {
    let payload = json!({
        "{{ schedule }}": 1,
        "day": "{{ scheduled_date }}",
        "list": [{"at": "{{ .ScheduledAt }}"}, "{%- raw %}{{ .Kept }}{% endraw %}", null, 2.5, true],
        "plain": "{% not a template",
    });
    let rendered = render_payload(&payload, &tick("2026-11-30T18:00:00Z", "UTC")).expect("valid");
    let expected = json!({
        "{{ schedule }}": 1,
        "day": "2026-11-30",
        "list": [{"at": "2026-11-30T18:00:00+00:00"}, "{{ .Kept }}", null, 2.5, true],
        "plain": "{% not a template",
    });
    assert_eq!(rendered, expected);
    assert!(check_payload(&json!({"a": ["{{ nosuch }}"]})).is_err());
}

#[test]
fn a_payload_has_a_largest_size() {
    let half = "x".repeat(MAX_PAYLOAD_BYTES / 2);
    let payload = json!({"a": format!("{half}{{{{ schedule }}}}"), "b": half});
    let error = render_payload(&payload, &tick("2026-11-30T18:00:00Z", "UTC")).expect_err("big");
    assert!(matches!(error, TemplateError::TooLong { limit: MAX_PAYLOAD_BYTES }), "{error}");
}

#[test]
fn reports_are_rendered_unescaped_and_bounded() {
    let context =
        json!({"rows": [{"n": "<a>", "v": 2}, {"n": "b", "v": 3}], "big": "x".repeat(1000)});
    let told = |template: &str| render(template, &context).map_err(|e| e.to_string());
    let sum =
        "{% for r in rows %}{{ r.n }}={{ r.v }};{% endfor %}{{ rows | sum(attribute='v') }}\n";
    assert_eq!(told(sum).as_deref(), Ok("<a>=2;b=3;5\n"));
    assert_eq!(told("{{ rows[1] | tojson }}").as_deref(), Ok(r#"{"n": "b", "v": 3}"#));
    assert_eq!(told("{{ summary | default('none') }}").as_deref(), Ok("none"));
    assert!(told("a\n{{ summary }}").expect_err("undefined").contains("line 2"));
    let long = told("{% for i in range(2000) %}{{ big }}{% endfor %}").expect_err("too long");
    assert!(long.contains("1048576 bytes"), "{long}");
    let endless = "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}";
    assert!(told(endless).expect_err("too much").contains("too much work"));
}
