//! CronJobs of Kubernetes: single documents, several, and lists of them.
//!
//! Every key that is not translated is named, so that nothing is lost in silence.

mod container;
mod part;

use serde_json::Value;
use shared::config::{Document, LONGEST_DURATION, MOST_RETRIES, documents};
use shared::domain::cron::{Cron, parse_zone};

use container::work;
use part::Part;

use super::{Entry, Found, Item, at_most, command};
use crate::commands::error::CommandError;

/// `backoffLimit` where a job has none.
const BACKOFF_LIMIT: u64 = 6;
/// Seconds of the longest duration here.
const LONGEST: u64 = LONGEST_DURATION.as_secs();
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
    for document in documents {
        take(document, &mut found);
    }
    Ok(found)
}

fn take(document: Document, found: &mut Found) {
    let line = document.line();
    match document.text("kind").unwrap_or("nothing") {
        "List" | "CronJobList" => {
            document.into_items("items").into_iter().for_each(|item| take(item, found));
        }
        "CronJob" => {
            let value = document.into_value();
            let name = value["metadata"]["name"].as_str().unwrap_or("without a name");
            let source = format!("CronJob {name}");
            found.items.push(Item { line, source, entry: entry(&value) });
        }
        kind => {
            found.lost.push((line, format!("a document of kind {kind}, which is no CronJob")));
        }
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
    history(&spec, &job, &mut entry)?;
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
            let seconds = at_most(LONGEST, "startingDeadlineSeconds", seconds, entry);
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
        entry.pause();
    }
    Ok(())
}

fn retries(job: &Part<'_>, entry: &mut Entry) -> Result<(), String> {
    let limit = job.number("backoffLimit")?.unwrap_or(BACKOFF_LIMIT);
    let limit = at_most(MOST_RETRIES, "backoffLimit", limit, entry);
    entry.set("max_retry", limit);
    // The delays of a job's controller.
    entry.set("retry_backoff_base", "10s");
    entry.set("retry_backoff_max", "6m");
    Ok(())
}

fn limits(job: &Part<'_>, pod: &Part<'_>, entry: &mut Entry) -> Result<(), String> {
    let (whole, one) = (job.number("activeDeadlineSeconds")?, pod.number("activeDeadlineSeconds")?);
    match one.or(whole) {
        Some(seconds) => {
            let seconds = at_most(LONGEST, "activeDeadlineSeconds", seconds, entry);
            entry.set("timeout", format!("{seconds}s"));
        }
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
fn history(spec: &Part<'_>, job: &Part<'_>, entry: &mut Entry) -> Result<(), String> {
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        spec.take(key);
    }
    job.take("ttlSecondsAfterFinished");
    for key in ["parallelism", "completions"] {
        if job.number(key)?.is_some_and(|pods| pods != 1) {
            entry.doubt(format!("spec.jobTemplate.spec.{key}: a task is one run of one program"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
