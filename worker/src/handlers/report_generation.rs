//! `report_generation`: data, perhaps a model's summary, a template; the result is a kept artifact.

mod copy;

use std::fmt::Write as _;

use async_trait::async_trait;
use chrono::SecondsFormat;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use shared::config::{Report, ReportFetch, ReportQuery};
use shared::domain::outcome::TaskError;
use shared::domain::payloads::{self, Payload};
use shared::domain::{clock, template};
use shared::http::Call;
use shared::store::source::Sources;
use shared::store::{NewArtifact, Tx};

use super::web::{Web, reveal_headers};
use crate::context::{Context, claim_lost};
use crate::handler::Handler;
use crate::llm::{ChatRequest, Message};

/// Longest summary in tokens.
const SUMMARY_TOKENS: u32 = 1024;

/// See the module.
pub(super) struct ReportGeneration {
    web: Web,
    sources: Sources,
}

impl ReportGeneration {
    pub fn new(web: Web, sources: Sources) -> Self {
        Self { web, sources }
    }
}

#[async_trait]
impl Handler for ReportGeneration {
    fn task_type(&self) -> &'static str {
        payloads::ReportGeneration::TYPE
    }

    fn summary(&self) -> &'static str {
        "a report from queries, fetches, a model's summary and a template"
    }

    fn schema(&self) -> Value {
        payloads::ReportGeneration::schema()
    }

    fn check(&self, payload: &Value) -> Result<(), String> {
        payloads::ReportGeneration::read(payload).map(drop)
    }

    async fn run(&self, context: &Context, payload: Value) -> Result<Value, TaskError> {
        let asked = payloads::ReportGeneration::read(&payload).map_err(TaskError::invalid)?;
        let reports = &context.house.config.reports;
        let report = reports.get(&asked.report).ok_or_else(|| {
            let known = reports.keys().cloned().collect::<Vec<_>>().join(", ");
            TaskError::permanent(format!(
                "there is no report {:?}; reports: of belfry.yaml has {known}",
                asked.report
            ))
        })?;
        let part = format!("reports.{}", asked.report);
        context.house.config.require_complete(&part).map_err(TaskError::permanent)?;
        let date = date_of(context, &asked).await?;
        let mut making = Making::new(context, &asked.report, &date);
        let made = self.make(&mut making, report).await;
        let text = match made {
            Ok(text) => text,
            Err(error) => {
                context.progress(making.done, 1).await?;
                return Err(error);
            }
        };
        keep(context, asked.report, date, &report.content_type, text).await
    }
}

/// A report in the making: what is known for its templates, and how far it is.
struct Making<'a> {
    context: &'a Context,
    /// What parameters and addresses may name: the frame without the data.
    frame: Value,
    data: Map<String, Value>,
    done: u64,
}

impl<'a> Making<'a> {
    fn new(context: &'a Context, report: &str, date: &str) -> Self {
        let at = context.scheduled_for.map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true));
        let frame = json!({"report": report, "date": date, "scheduled_for": at});
        Self { context, frame, data: Map::new(), done: 0 }
    }

    async fn add(&mut self, name: &str, value: Value) -> Result<(), TaskError> {
        self.data.insert(name.to_owned(), value);
        self.done += 1;
        self.context.progress(self.done, 0).await
    }

    /// All variables. The frame's names win over a query's.
    fn variables(&self) -> Value {
        let mut all = self.data.clone();
        all.extend(self.frame.as_object().cloned().unwrap_or_default());
        Value::Object(all)
    }
}

impl ReportGeneration {
    async fn make(&self, making: &mut Making<'_>, report: &Report) -> Result<String, TaskError> {
        for (name, query) in &report.queries {
            let rows = self.query(making, name, query).await?;
            making.add(name, rows).await?;
        }
        for (name, fetch) in &report.fetches {
            let answer = self.fetch(making, name, fetch).await?;
            making.add(name, answer).await?;
        }
        if let Some(prompt) = &report.summary_prompt {
            let prompt = render("summary_prompt", prompt.clone(), making.variables()).await?;
            let request = ChatRequest {
                messages: vec![Message::user(prompt)],
                max_tokens: Some(SUMMARY_TOKENS),
                ..ChatRequest::default()
            };
            let reply = making.context.chat("summary", request).await?;
            // Stored answers may be older than a secret of the configuration.
            let summary = making.context.redact(&reply.answer.text);
            making.add("summary", summary.into()).await?;
        }
        render("template", report.template.clone(), making.variables()).await
    }

    async fn query(
        &self,
        making: &Making<'_>,
        name: &str,
        query: &ReportQuery,
    ) -> Result<Value, TaskError> {
        let params = query.params.iter().map(|param| filled(param, &making.frame));
        let params = params.collect::<Result<Vec<_>, _>>()?;
        let input = json!({"source": query.source, "sql": query.sql, "params": params});
        let work = async {
            let rows = self.sources.query_json(&query.source, &query.sql, &params).await?;
            Ok(Value::Array(rows))
        };
        making.context.step(&format!("query {name}"), &input, work).await
    }

    async fn fetch(
        &self,
        making: &Making<'_>,
        name: &str,
        fetch: &ReportFetch,
    ) -> Result<Value, TaskError> {
        let context = making.context;
        let url = filled(&fetch.url.clone().into(), &making.frame)?;
        let url = url.as_str().unwrap_or_default();
        let work = async {
            let mut call =
                Call::get(url).map_err(|error| TaskError::invalid(format!("{name}: {error}")))?;
            call.headers = reveal_headers(context, fetch.headers.iter())?;
            let answer = self.web.send(context, call, None).await?;
            if !(200..300).contains(&answer.status) {
                return Err(answer.refusal(context));
            }
            if answer.truncated {
                let limit = super::web::MAX_BODY_BYTES;
                return Err(TaskError::permanent(format!("{name}: more than {limit} bytes")));
            }
            Ok(answer.body(context))
        };
        context.step(&format!("fetch {name}"), &json!({ "url": url }), work).await
    }
}

/// What the report is about: as said, else the planned instant, else today — the same day in every
/// attempt, even past midnight.
async fn date_of(
    context: &Context,
    asked: &payloads::ReportGeneration,
) -> Result<String, TaskError> {
    if let Some(date) = &asked.date {
        return Ok(date.clone());
    }
    if let Some(at) = context.scheduled_for {
        return Ok(at.to_rfc3339_opts(SecondsFormat::Secs, true));
    }
    let today = async { Ok(clock::now().date_naive().to_string()) };
    context.step("date", &Value::Null, today).await
}

/// A text with the frame's names filled in; anything else as it is.
fn filled(value: &Value, frame: &Value) -> Result<Value, TaskError> {
    match value {
        Value::String(text) if text.contains("{{") => {
            Ok(Value::String(template::render(text, frame).map_err(TaskError::permanent)?))
        }
        other => Ok(other.clone()),
    }
}

/// Renders apart from the runtime's threads: a long table takes its time.
async fn render(what: &str, text: String, variables: Value) -> Result<String, TaskError> {
    let names: Vec<&str> = variables.as_object().into_iter().flatten().map(|(k, _)| &**k).collect();
    // The engine tells the line of an undefined variable, not its name.
    let known = format!("{what} of the report may use {}", names.join(", "));
    let rendered = tokio::task::spawn_blocking(move || template::render(&text, &variables)).await;
    match rendered {
        Ok(Ok(text)) => Ok(text.replace('\0', "\u{fffd}")),
        Ok(Err(error)) => Err(TaskError::permanent(format!("{error}; {known}"))),
        Err(stopped) => Err(TaskError::retry(format!("rendering was stopped: {stopped}"))),
    }
}

/// Keeps the report, copies it where it is wanted, and completes the task with what there is now:
/// all of it or nothing.
async fn keep(
    context: &Context,
    report: String,
    date: String,
    content_type: &str,
    text: String,
) -> Result<Value, TaskError> {
    let artifact = NewArtifact {
        report,
        date,
        content_type: content_type.to_owned(),
        content: text.into_bytes(),
    };
    context.complete_in(|tx| kept_in(tx, context, &artifact)).await
}

async fn kept_in(tx: Tx, context: &Context, artifact: &NewArtifact) -> Result<Value, TaskError> {
    let (id, owner) = tx.keep_artifact(artifact).await?.ok_or_else(claim_lost)?;
    if owner != context.task_id {
        // One report per name and date: this one was made before, and stays as it is.
        let said = json!({"artifact": id, "report": artifact.report, "date": artifact.date, "made_by": owner});
        return Ok(said);
    }
    let mut result = json!({
        "artifact": id,
        "report": artifact.report,
        "date": artifact.date,
        "bytes": artifact.content.len(),
        "sha256": hex(&Sha256::digest(&artifact.content)),
    });
    if let Some(directory) = &context.house.config.artifacts_dir {
        // Inside: the row's lock keeps a late worker from replacing its successor's copy.
        let file = copy::write(directory, artifact).await.map_err(|error| {
            TaskError::retry(format!(
                "the report is made, but its copy in {} cannot be written: {error}",
                directory.display()
            ))
        })?;
        result["file"] = file.into();
    }
    Ok(result)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
