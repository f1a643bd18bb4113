//! CronJobs of Kubernetes: single documents, several, and lists of them.
//!
//! Every key that is not translated is named, so that nothing is lost in silence.

mod part;

use serde_json::Value;
use shared::config::documents;
use shared::domain::cron::{Cron, parse_zone};

use part::Part;

use super::{Entry, Found, Item, command};
use crate::commands::error::CommandError;

/// `backoffLimit` where a job has none.
const BACKOFF_LIMIT: u64 = 6;
/// Keys that a cluster writes by itself, and that say nothing about a schedule.
const RUNTIME: [&str; 7] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
    "ownerReferences",
];

/// Reads all CronJobs of a text.
pub(super) fn read(text: &str, name: &str) -> Result<Found, CommandError> {
    let mut found = Found {
        remarks: vec![
            "A container's image is not carried over: its program must be on the worker, and \
             `command` must allow it."
                .to_owned(),
        ],
        ..Found::default()
    };
    let documents = documents(text, name)?;
    if documents.is_empty() {
        return Err(CommandError::Usage(format!("{name} holds no document")));
    }
    for document in &documents {
        take(&document.value, document.line, &mut found);
    }
    Ok(found)
}

fn take(value: &Value, line: usize, found: &mut Found) {
    let kind = value["kind"].as_str().unwrap_or("nothing");
    match kind {
        "List" | "CronJobList" => {
            let items = value["items"].as_array();
            items.into_iter().flatten().for_each(|item| take(item, line, found));
        }
        "CronJob" => {
            let name = value["metadata"]["name"].as_str().unwrap_or("without a name");
            let source = format!("CronJob {name}");
            found.items.push(Item { line, source, entry: entry(value) });
        }
        _ => found.lost.push((line, format!("a document of kind {kind}, which is no CronJob"))),
    }
}

fn entry(value: &Value) -> Result<Entry, String> {
    let mut entry = Entry::default();
    let root = Part::of(value, "");
    root.take("apiVersion");
    root.take("kind");
    root.take("status");
    metadata(&root.part("metadata"), &mut entry)?;
    let spec = root.part("spec");
    timing(&spec, &mut entry)?;
    let template = spec.part("jobTemplate");
    ignore_metadata(&template, &mut entry);
    let job = template.part("spec");
    let pod_template = job.part("template");
    ignore_metadata(&pod_template, &mut entry);
    let pod = pod_template.part("spec");
    work(&pod, &mut entry)?;
    policies(&spec, &mut entry)?;
    retries(&job, &mut entry)?;
    limits(&job, &pod, &mut entry)?;
    history(&spec, &job);
    for part in [&root, &spec, &template, &job, &pod_template, &pod] {
        for key in part.rest() {
            entry.lose(key);
        }
    }
    Ok(entry)
}

fn metadata(metadata: &Part<'_>, entry: &mut Entry) -> Result<(), String> {
    let name = metadata.text("name")?.ok_or("metadata.name is missing")?;
    entry.name = command::slug(name).ok_or("metadata.name holds no letter")?;
    ignore(metadata);
    for key in metadata.rest() {
        entry.lose(key);
    }
    Ok(())
}

fn ignore(metadata: &Part<'_>) {
    for key in RUNTIME {
        metadata.take(key);
    }
}

/// Metadata of a template: labels and the like.
fn ignore_metadata(template: &Part<'_>, entry: &mut Entry) {
    let metadata = template.part("metadata");
    ignore(&metadata);
    for key in metadata.rest() {
        entry.lose(key);
    }
}

fn timing(spec: &Part<'_>, entry: &mut Entry) -> Result<(), String> {
    let written = spec.text("schedule")?.ok_or("spec.schedule is missing")?.trim();
    let (inside, when) = match written.strip_prefix("CRON_TZ=").or(written.strip_prefix("TZ=")) {
        Some(rest) => {
            let (zone, when) = rest.split_once(' ').ok_or("spec.schedule has a zone alone")?;
            (Some(zone), when.trim())
        }
        None => (None, written),
    };
    // To Kubernetes `?` is another `*`.
    let when: Vec<&str> =
        when.split_ascii_whitespace().map(|field| if field == "?" { "*" } else { field }).collect();
    let cron = Cron::parse(&when.join(" ")).map_err(|error| format!("spec.schedule: {error}"))?;
    entry.set("schedule", when.join(" "));
    if let [_, _, day, _, weekday] = when.as_slice()
        && [day, weekday].iter().any(|field| field.starts_with("*/"))
        && [day, weekday].iter().all(|field| **field != "*")
    {
        entry.note(format!(
            "Kubernetes runs {:?} on days that fit either day field, Belfry on days that fit both",
            cron.as_str()
        ));
    }
    let zone = match (spec.text("timeZone")?, inside) {
        (Some(zone), _) | (None, Some(zone)) => {
            parse_zone(zone).map_err(|error| format!("spec.timeZone: {error}"))?.name()
        }
        (None, None) => {
            entry.note("without timeZone the cluster's zone counts, which is mostly UTC");
            "UTC"
        }
    };
    entry.set("timezone", zone);
    Ok(())
}

fn policies(spec: &Part<'_>, entry: &mut Entry) -> Result<(), String> {
    let overlap = match spec.text("concurrencyPolicy")?.unwrap_or("Allow") {
        "Allow" => "allow",
        "Forbid" => "skip",
        "Replace" => "replace",
        other => return Err(format!("spec.concurrencyPolicy: {other:?} is not known")),
    };
    entry.set("overlap", overlap);
    entry.set("catch_up", "latest");
    match spec.number("startingDeadlineSeconds")? {
        Some(seconds) => {
            entry.set("catch_up_window", format!("{seconds}s"));
            if seconds > 0 {
                entry.set("deadline", format!("{seconds}s"));
                entry.note(
                    "`deadline` counts until a worker begins, the cluster's until there is a job",
                );
            }
        }
        None => entry.note(
            "without startingDeadlineSeconds a missed run starts however late, here within \
             catch_up_window (1 hour)",
        ),
    }
    if spec.boolean("suspend")? == Some(true) {
        entry.set("paused", true);
    }
    Ok(())
}

fn retries(job: &Part<'_>, entry: &mut Entry) -> Result<(), String> {
    entry.set("max_retry", job.number("backoffLimit")?.unwrap_or(BACKOFF_LIMIT));
    // The delays of a job's controller.
    entry.set("retry_backoff_base", "10s");
    entry.set("retry_backoff_max", "6m");
    Ok(())
}

fn limits(job: &Part<'_>, pod: &Part<'_>, entry: &mut Entry) -> Result<(), String> {
    let (whole, one) = (job.number("activeDeadlineSeconds")?, pod.number("activeDeadlineSeconds")?);
    match one.or(whole) {
        Some(seconds) => entry.set("timeout", format!("{seconds}s")),
        None => entry.note(
            "without activeDeadlineSeconds a job has all the time; here an attempt has 5 minutes \
             unless `timeout` says otherwise",
        ),
    }
    if whole.is_some() && one.is_none() {
        entry.note("activeDeadlineSeconds is for all tries together, `timeout` for each attempt");
    }
    Ok(())
}

/// What is said in other places here, or is so by itself.
fn history(spec: &Part<'_>, job: &Part<'_>) {
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        spec.take(key);
    }
    job.take("ttlSecondsAfterFinished");
    for key in ["parallelism", "completions"] {
        job.take_if(key, |value| value.as_u64() == Some(1));
    }
}

fn work(pod: &Part<'_>, entry: &mut Entry) -> Result<(), String> {
    pod.take("restartPolicy");
    let containers = pod.list("containers")?;
    let Some(first) = containers.first() else {
        return Err("its pod has no container".to_owned());
    };
    let container = Part::of(first, "containers[0]");
    if containers.len() > 1 {
        entry.lose(format!("containers[1] to [{}]: a task is one program", containers.len() - 1));
    }
    container.take("name");
    let image = container.text("image")?.unwrap_or("an unnamed image");
    container.take("imagePullPolicy");
    let (program, arguments) = (container.texts("command")?, container.texts("args")?);
    entry.lose(format!("the image {image}"));
    if program.is_empty() {
        entry.note("its program is the image's own and is not known: write it, and drop `paused`");
        entry.set("paused", true);
        let words: Vec<String> =
            std::iter::once(format!("/the/program/of/{image}")).chain(arguments).collect();
        entry.set("task_type", "command");
        entry.set("payload", serde_json::json!({ "argv": words }));
    } else {
        let words: Vec<String> = program.into_iter().chain(arguments).collect();
        if words.iter().any(|word| word.contains("$(")) {
            entry.lose("references such as $(NAME) to the container's variables");
        }
        match words.as_slice() {
            [shell, option, script] if is_shell(shell) && option == "-c" => {
                command::line(script, None, entry);
            }
            words => command::arguments(words, entry),
        }
    }
    for key in container.rest() {
        entry.lose(key);
    }
    Ok(())
}

fn is_shell(program: &str) -> bool {
    matches!(program, "sh" | "/bin/sh" | "bash" | "/bin/bash")
}

#[cfg(test)]
mod tests {
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
        assert_eq!(super::super::printed::check(&entry), Ok(()));
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

        let names: Vec<&str> = found
            .items
            .iter()
            .map(|item| item.entry.as_ref().expect("read").name.as_str())
            .collect();
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
}
