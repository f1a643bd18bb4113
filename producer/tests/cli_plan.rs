//! What needs no service: the rehearsal of a file, and files of other schedulers.
#![expect(dead_code, reason = "the house serves several stories")]

mod house;

use serde_json::{Value, json};
use tempfile::TempDir;

use house::{Said, command, run};

/// A directory, and nothing else.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn with(self, file: &str, text: &str) -> Self {
        std::fs::write(self.0.path().join(file), text).expect("written");
        self
    }

    fn producer(&self, args: &[&str]) -> Said {
        run(command(self.0.path().to_owned(), args), None)
    }

    /// What was printed is a configuration: the schedules that it has.
    fn loads(self, printed: &str) -> Value {
        let desk = self.with("belfry.yaml", printed);
        desk.producer(&["config", "check"]).with(0);
        let path = desk.0.path().join("belfry.yaml");
        let config = shared::config::load(Some(&path)).expect("right");
        config
            .schedules
            .iter()
            .map(|s| json!([s.name, s.cron.as_str(), s.timezone.name(), s.task_type, s.paused]))
            .collect()
    }
}

const FILE: &str = "
tasks:
- {name: nightly, schedule: '30 2 * * *', timezone: Europe/Berlin, task_type: http_call, payload: {url: 'https://x.example/'}}
- {name: beat, schedule: '*/10 * * * * *', task_type: http_call, payload: {url: 'https://x.example/'}}
";

#[test]
fn a_plan_tells_of_clocks_collisions_and_peaks_without_any_service() {
    let desk = Desk::new().with("belfry.yaml", FILE);
    let day = ["schedules", "plan", "--from", "2026-03-29T00:00", "--to", "2026-03-29T01:00"];

    let plan = desk.producer(&[&day[..], &["--limit", "5", "--json"]].concat()).with(0).json();
    let told = desk.producer(&[&day[..], &["nightly"]].concat()).with(0).out;

    assert_eq!((&plan["ticks_total"], &plan["collisions_total"]), (&json!(362), &json!(1)));
    assert_eq!(plan["ticks"].as_array().map(Vec::len), Some(5));
    assert_eq!(plan["collisions"][0]["schedules"], json!(["beat", "nightly"]));
    assert_eq!(plan["peaks"][0]["ticks"], 6);
    assert!(told.contains("made up for 02:30, which does not exist"), "{told}");
    assert!(told.contains("1 tick of 1 schedule from 2026-03-29T00:00:00Z"), "{told}");
}

#[test]
fn a_plan_is_bounded_and_says_so() {
    let desk = Desk::new().with("belfry.yaml", FILE);
    let plan = |to: &str, more: &[&str]| {
        desk.producer(
            &[&["schedules", "plan", "--from", "2026-01-01T00:00", "--to", to], more].concat(),
        )
    };

    plan("2026-12-31T00:00", &[]).with(2).complains("a plan looks at 200000 at most");
    plan("2025-12-31T00:00", &[]).with(2).complains("--to is before --from");
    plan("2026-01-02T00:00", &["nightli"]).with(3).complains("did you mean `nightly`?");
    let some = plan("2026-01-02T00:00", &["beat", "--limit", "3"]).with(0).out;
    assert!(some.contains("… and 8638 more"), "{some}");
}

const CRONTAB: &str = "\
# m h  dom mon dow   command
MAILTO=ops@x.example
CRON_TZ=Europe/Berlin
30 2 * * 1-5 /usr/local/bin/backup --full >/dev/null 2>&1
*/5 * * * * curl -fsS -H 'X-Beat: 1' https://x.example/beat
@daily cd /srv/app && ./report.sh \"$HOME\" | mail -s \"Report \\%\" root
0 6 * * * mail -s hello root%Dear all,%{{ .Names }} costs ${PRICE}
0 0 * * * docker ps --format '{{.Names}}'
@reboot /usr/local/bin/warm-up
5/15 * * * * /usr/local/bin/odd
";

#[test]
fn a_crontab_becomes_a_file_that_loads() {
    let desk = Desk::new().with("cron.txt", CRONTAB);

    let said = desk.producer(&["schedules", "import", "--from", "crontab", "cron.txt"]).with(0);

    for part in [
        "cron.txt:2: not carried over: MAILTO: no mail is sent",
        "cron.txt:4: backup: note: the output went to /dev/null",
        "cron.txt:9: left out: @reboot /usr/local/bin/warm-up: @reboot is no time",
        "cron.txt:10: left out: 5/15 * * * * /usr/local/bin/odd: cron field minute",
        "5 schedules, 2 left out",
    ] {
        assert!(said.err.contains(part), "{part:?} is not said: {}", said.err);
    }
    assert!(said.out.contains("# left out: @reboot is no time"), "{}", said.out);
    assert_eq!(
        desk.loads(&said.out),
        json!([
            ["backup", "30 2 * * 1-5", "Europe/Berlin", "command", false],
            ["curl", "*/5 * * * *", "Europe/Berlin", "http_call", false],
            ["report", "@daily", "Europe/Berlin", "command", false],
            ["mail", "0 6 * * *", "Europe/Berlin", "command", false],
            ["docker", "0 0 * * *", "Europe/Berlin", "command", false],
        ])
    );
}

#[test]
fn the_system_s_crontab_and_an_empty_one_load_too() {
    let system =
        "# m h dom mon dow user\tcommand\n17 * * * * root cd / && run-parts /etc/cron.hourly\n";
    let desk = Desk::new().with("crontab", system).with("empty", "# nothing\n");

    let zoned = ["--timezone", "Asia/Shanghai", "crontab"];
    let import = ["schedules", "import", "--from", "crontab"];
    let said = desk.producer(&[&import[..], &zoned].concat()).with(0);
    let empty = desk.producer(&[&import[..], &["empty"]].concat()).with(0);
    let wrong = desk.producer(&[&import[..], &["--timezone", "Mars", "empty"]].concat());

    wrong.with(2).complains("--timezone: unknown time zone");
    desk.producer(&[&import[..], &["nowhere"]].concat())
        .with(2)
        .complains("nowhere cannot be read");
    let said = said.complains("not carried over: the user root");
    let hourly = json!([["run-parts", "17 * * * *", "Asia/Shanghai", "command", false]]);
    assert_eq!(desk.loads(&said.out), hourly);
    assert_eq!(Desk::new().loads(&empty.out), json!([]));
}

#[test]
fn a_crontab_of_another_system_loses_neither_its_first_line_nor_its_variables() {
    let text = "\u{feff}0 1 * * * /opt/first\r\nDIR=\"/srv/a b\"\r\n0 2 * * * cd \"$DIR\" && ./second\r\n\
                0 3 * * * curl -f --retry 5000 https://x.example/\r\n";
    let desk = Desk::new().with("cron.txt", text);

    let said = desk.producer(&["schedules", "import", "--from", "crontab", "cron.txt"]).with(0);

    for part in [
        "cron.txt:3: second: paused, for it would not run the same: it uses $DIR",
        "cron.txt:4: curl: note: --retry 5000 is more than is taken here; it became 1000",
        "3 schedules, 0 left out",
    ] {
        assert!(said.err.contains(part), "{part:?} is not said: {}", said.err);
    }
    assert_eq!(
        desk.loads(&said.out),
        json!([
            ["first", "0 1 * * *", "UTC", "command", false],
            ["second", "0 2 * * *", "UTC", "command", true],
            ["curl", "0 3 * * *", "UTC", "http_call", false],
        ])
    );
}

/// What somebody has to look at is found by its line, and what keeps an entry out is named.
#[test]
fn cronjobs_of_a_list_are_told_by_their_lines_and_limits_by_their_keys() {
    let job = |name: &str, keys: &str| {
        format!(
            "- kind: CronJob\n  metadata: {{name: {name}}}\n  spec: {{schedule: '@daily', jobTemplate: {{spec: {{{keys}, \
             template: {{spec: {{containers: [{{image: i, command: [/bin/x]}}]}}}}}}}}}}\n"
        )
    };
    let text = "kind: List\nitems:\n".to_owned()
        + &job("a", "backoffLimit: 5000")
        + &job("b", "activeDeadlineSeconds: 9999999999")
        + &job("c", "activeDeadlineSeconds: 0");
    let desk = Desk::new().with("jobs.yaml", &text);

    let said =
        desk.producer(&["schedules", "import", "--from", "k8s-cronjob", "jobs.yaml"]).with(0);

    for part in [
        "jobs.yaml:3: a: note: backoffLimit 5000 is more than is taken here; it became 1000",
        "jobs.yaml:6: b: note: activeDeadlineSeconds 9999999999 is more than is taken here",
        "jobs.yaml:9: left out: CronJob c: timeout: must be longer than 0",
        "2 schedules, 1 left out",
    ] {
        assert!(said.err.contains(part), "{part:?} is not said: {}", said.err);
    }
    desk.loads(&said.out);
}

const CRONJOBS: &str = "
apiVersion: batch/v1
kind: CronJob
metadata: {name: sync, namespace: shop}
spec:
  schedule: '30 2 * * *'
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 600
  jobTemplate: {spec: {backoffLimit: 1, template: {spec: {restartPolicy: Never, containers: [
    {name: sync, image: 'x.example/sync:1', command: [/bin/sync], args: [--all], env: [{name: A, value: b}]}]}}}}
---
apiVersion: v1
kind: List
items:
- apiVersion: batch/v1
  kind: CronJob
  metadata: {name: sync, namespace: other}
  spec:
    schedule: '@hourly'
    suspend: true
    jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: a, command: [curl, -f, 'https://x.example/']}]}}}}
- {kind: Service, metadata: {name: web}}
- {kind: CronJob, metadata: {name: odd}, spec: {schedule: '@every 1h'}}
";

#[test]
fn cronjobs_become_a_file_that_loads() {
    let desk = Desk::new().with("jobs.yaml", CRONJOBS);

    let import = ["schedules", "import", "--from", "k8s-cronjob", "jobs.yaml"];
    let said = desk.producer(&import).with(0);
    let json = desk.producer(&[&import[..], &["--json"]].concat()).with(0).json();

    for part in [
        "sync: not carried over: metadata.namespace",
        "sync: not carried over: the image x.example/sync:1",
        "sync: paused, for it would not run the same: containers[0].env",
        "not carried over: a document of kind Service",
        "left out: CronJob odd: spec.schedule:",
        "2 schedules, 1 left out",
    ] {
        assert!(said.err.contains(part), "{part:?} is not said: {}", said.err);
    }
    assert_eq!(json["tasks"][0]["max_retry"], 1);
    assert_eq!(json["left_out"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        desk.loads(&said.out),
        json!([
            ["sync", "30 2 * * *", "Europe/Berlin", "command", true],
            ["sync_2", "@hourly", "UTC", "http_call", true],
        ])
    );
}
