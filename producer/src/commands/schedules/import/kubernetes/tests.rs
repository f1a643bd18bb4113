use super::*;

const JOB: &str = "
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly-sync, namespace: shop, uid: abc, labels: {a: b}}
spec:
  schedule: 'CRON_TZ=Europe/Berlin 30 2 ? * 1-5'
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 200
  suspend: true
  successfulJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: 600
      parallelism: 2
      template:
        spec:
          restartPolicy: OnFailure
          serviceAccountName: sync
          containers:
          - name: sync
            image: registry.example/sync:1
            command: [/bin/sync, --all]
            args: ['{{.X}}', '${Y}']
            env: [{name: TOKEN, value: s3cret}]
";

fn only(text: &str) -> Item {
    let mut found = read(text, "x.yaml").expect("YAML");
    assert_eq!(found.items.len(), 1, "{found:?}");
    found.items.remove(0)
}

#[test]
fn every_key_is_translated_or_named() {
    let entry = only(JOB).entry.expect("an entry");

    assert_eq!(
        entry.value(),
        serde_json::json!({
            "name": "nightly-sync",
            "schedule": "30 2 * * 1-5",
            "timezone": "Europe/Berlin",
            "task_type": "command",
            "payload": {"argv": ["/bin/sync", "--all", "{{.X}}", "${Y}"]},
            "overlap": "skip",
            "catch_up": "latest",
            "catch_up_window": "200s",
            "deadline": "200s",
            "paused": true,
            "max_retry": 2,
            "retry_backoff_base": "10s",
            "retry_backoff_max": "6m",
            "timeout": "600s",
        })
    );
    let said = entry.said.join("\n");
    for part in [
        "metadata.namespace",
        "metadata.labels",
        "the image registry.example/sync:1",
        "containers[0].env",
        "spec.jobTemplate.spec.parallelism",
        "spec.jobTemplate.spec.template.spec.serviceAccountName",
        "for all tries together",
    ] {
        assert!(said.contains(part), "{part} is not said: {said}");
    }
    assert!(!said.contains("uid") && !said.contains("s3cret"), "{said}");
    assert_eq!(crate::commands::schedules::import::printed::check(&entry), Ok(()));
}

#[test]
fn lists_documents_and_strangers() {
    let job = |name: &str| {
        format!(
            "{{kind: CronJob, metadata: {{name: {name}}}, spec: {{schedule: '0 1 * * *', \
                 jobTemplate: {{spec: {{template: {{spec: {{containers: [{{image: i, command: \
                 [curl, -fsS, 'https://a.example/']}}]}}}}}}}}}}}}"
        )
    };
    let text = format!(
        "kind: List\nitems:\n- {}\n- {}\n---\n{}\n---\nkind: Deployment\n",
        job("a"),
        job("b"),
        job("c")
    );

    let found = read(&text, "x.yaml").expect("YAML");

    let names: Vec<&str> =
        found.items.iter().map(|item| item.entry.as_ref().expect("read").name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let entry = found.items[0].entry.as_ref().expect("read");
    assert_eq!(entry.value()["task_type"], "http_call");
    assert_eq!(entry.value()["overlap"], "allow");
    assert_eq!(entry.value()["max_retry"], 6);
    assert_eq!(found.lost.len(), 1, "{:?}", found.lost);
}

#[track_caller]
fn refused(change: (&str, &str), expected: &str) {
    let entry = only(&JOB.replace(change.0, change.1)).entry;
    let why = entry.expect_err("left out");
    assert!(why.starts_with(expected), "{why}");
}

#[test]
fn what_cannot_be_translated_is_left_out_with_the_reason() {
    refused(("30 2 ? * 1-5", "@every 1h"), "spec.schedule: cron expression");
    refused(("Europe/Berlin", "Europe/Berln"), "spec.timeZone: unknown time zone");
    refused(("Forbid", "Perhaps"), "spec.concurrencyPolicy: \"Perhaps\"");
    refused(
        ("backoffLimit: 2", "backoffLimit: many"),
        "spec.jobTemplate.spec.backoffLimit: expected",
    );
    refused(("  schedule:", "  when:"), "spec.schedule is missing");
}

#[track_caller]
fn doubted(more: (&str, &str), reason: &str) {
    let plain =
        JOB.replace("      parallelism: 2\n", "").replace("suspend: true", "suspend: false");
    let plain = plain.replace("            env: [{name: TOKEN, value: s3cret}]\n", "");
    let before = only(&plain).entry.expect("an entry");
    let doubtful = only(&plain.replace(more.0, more.1)).entry.expect("an entry");
    assert_eq!(before.value().get("paused"), None, "{before:?}");
    assert_eq!(doubtful.value()["paused"], true, "{doubtful:?}");
    let reason = format!("paused, for it would not run the same: {reason}");
    assert!(doubtful.said.iter().any(|said| said.starts_with(&reason)), "{doubtful:?}");
    assert_eq!(crate::commands::schedules::import::printed::check(&doubtful), Ok(()));
}

#[test]
fn what_would_not_run_the_same_is_paused_with_the_reason() {
    let pod = "          containers:\n";
    let last = "            args: ['{{.X}}', '${Y}']\n";
    let container = |more: &str| format!("{last}            {more}\n");
    doubted((last, &format!("{last}          - {{name: b, image: i}}\n")), "containers[1] to [1]");
    doubted((pod, &format!("          initContainers: [{{name: a}}]\n{pod}")), "initContainers");
    doubted(
        ("      backoffLimit", "      completions: 3\n      backoffLimit"),
        "spec.jobTemplate.spec.completions",
    );
    doubted(
        ("      backoffLimit", "      parallelism: 0\n      backoffLimit"),
        "spec.jobTemplate.spec.parallelism",
    );
    doubted(("'{{.X}}'", "$(TOKEN)"), "references such as $(NAME)");
    doubted((last, &container("env: [{name: A, value: b}]")), "containers[0].env");
    doubted((last, &container("envFrom: []")), "containers[0].envFrom");
    doubted((last, &container("workingDir: /srv")), "containers[0].workingDir");
}

/// Two reasons are one pause, or the entry would hold the key twice and not load.
#[test]
fn a_suspended_job_of_an_unknown_program_is_paused_once() {
    let entry = only(&JOB.replace("command: [/bin/sync, --all]", "tty: true")).entry;
    assert_eq!(
        crate::commands::schedules::import::printed::check(&entry.expect("an entry")),
        Ok(())
    );
}

#[test]
fn an_image_without_command_is_paused_until_somebody_writes_one() {
    let entry = only(
        &JOB.replace("command: [/bin/sync, --all]", "tty: true")
            .replace("suspend: true", "suspend: false"),
    );
    let value = entry.entry.expect("an entry").value();
    assert_eq!(value["paused"], true);
    assert_eq!(value["payload"]["argv"][0], "/the/program/of/registry.example/sync:1");
}
