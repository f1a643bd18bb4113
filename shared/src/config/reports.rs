//! `reports`: what `report_generation` renders.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use super::check;
use super::keys;
use super::payload;
use super::problems::suggestion;
use super::reader::{Place, Section};
use super::{Report, ReportFetch, ReportQuery};

/// Default of `reports.*.content_type`.
pub const DEFAULT_CONTENT_TYPE: &str = "text/markdown";
/// Largest template file.
const MAX_TEMPLATE_BYTES: u64 = 1024 * 1024;
/// Headers whose value is a secret and belongs under `secrets`.
const SECRET_HEADERS: [&str; 5] =
    ["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"];

/// What reports refer to.
pub(super) struct Context<'a> {
    /// Names of `sources`.
    pub sources: Vec<&'a str>,
    /// Names of `secrets`.
    pub secrets: Vec<&'a str>,
    /// Directory of the file, which `template_file` is relative to.
    pub directory: &'a Path,
}

/// Reads all entries; those without a template are left out.
pub(super) fn reports(root: &Section<'_>, context: &Context<'_>) -> BTreeMap<String, Report> {
    let read = |(name, place): (&str, Place<'_>)| {
        check::report(&place, check::word(name, "-_.", 64));
        Some((name.to_owned(), report(&place.section(keys::REPORT), context)?))
    };
    root.entries("reports").into_iter().filter_map(read).collect()
}

fn report(section: &Section<'_>, context: &Context<'_>) -> Option<Report> {
    let template = template(section, context.directory);
    let queries: BTreeMap<_, _> = section
        .entries("queries")
        .into_iter()
        .filter_map(|(name, place)| {
            check::report(&place, check::identifier(name));
            Some((name.to_owned(), query(&place.section(keys::QUERY), context)?))
        })
        .collect();
    let fetches = section
        .entries("fetches")
        .into_iter()
        .filter_map(|(name, place)| {
            check::report(&place, check::identifier(name));
            if queries.contains_key(name) {
                place
                    .problem(format!("a query is named {name} too; the template sees one of them"));
            }
            Some((name.to_owned(), fetch(&place.section(keys::FETCH), context)?))
        })
        .collect();
    let summary_prompt = section.get("summary_prompt").and_then(|place| {
        let text = place.lenient_text()?.text;
        check_template(&place, &text);
        Some(text)
    });
    let content_type = section.get("content_type").and_then(|place| {
        let text = place.text()?;
        if !text.contains('/') || text.contains(char::is_control) {
            place.problem("expected a media type such as text/markdown");
        }
        Some(text)
    });
    Some(Report {
        template: template?,
        queries,
        fetches,
        summary_prompt,
        content_type: content_type.unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned()),
    })
}

fn template(section: &Section<'_>, directory: &Path) -> Option<String> {
    match (section.get("template"), section.get("template_file")) {
        (Some(place), None) => {
            let text = place.required_text()?;
            check_template(&place, &text);
            Some(text)
        }
        (None, Some(place)) => {
            let file = directory.join(place.required_text()?);
            match read_template(&file) {
                Ok(text) => {
                    check_template(&place, &text);
                    Some(text)
                }
                Err(what) => {
                    place.problem(format!("{}: {what}", file.display()));
                    None
                }
            }
        }
        (Some(_), Some(place)) => {
            place.problem("`template` is given too; keep one of them");
            None
        }
        (None, None) => {
            if let Some(place) = section.place() {
                place.problem("`template` or `template_file` is missing");
            }
            None
        }
    }
}

fn read_template(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let open = std::fs::File::open(file).map_err(|error| error.to_string())?;
    open.take(MAX_TEMPLATE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_TEMPLATE_BYTES {
        return Err("larger than 1 MiB".to_owned());
    }
    Ok(text)
}

/// The syntax alone: which values a template needs is known only when it is rendered.
fn check_template(place: &Place<'_>, text: &str) {
    if let Err(error) = minijinja::Environment::new().template_from_str(text) {
        let line = error.line().map_or_else(String::new, |line| format!(" (its line {line})"));
        let detail = error.detail().unwrap_or("not understood").to_owned();
        place.problem(format!("not a valid template{line}: {detail}"));
    }
}

fn query(section: &Section<'_>, context: &Context<'_>) -> Option<ReportQuery> {
    let source = section.required("source").and_then(|place| {
        let name = place.required_text()?;
        if !context.sources.contains(&name.as_str()) {
            let hint = suggestion(&name, context.sources.iter().copied());
            place.problem(format!("no source is named {name}{hint}"));
        }
        Some(name)
    });
    let sql = section.required("sql").and_then(|place| place.required_text());
    let params = section.get("params").map(|place| place.items()).unwrap_or_default();
    let params = params.iter().map(payload::json).collect();
    Some(ReportQuery { source: source?, sql: sql?, params })
}

fn fetch(section: &Section<'_>, context: &Context<'_>) -> Option<ReportFetch> {
    let url = section.required("url").and_then(|place| {
        let url = place.lenient_text()?;
        // What the variables leave open, or a template, is judged when it is fetched.
        if url.unset.is_empty() && !url.text.contains("{{") {
            check::report(&place, check::http_url(&url.text));
        }
        if check::has_credentials(&url.text) {
            place.note("holds credentials; send them as a header from `secrets`");
        }
        Some(url.text)
    });
    let header = |(name, place): (&str, Place<'_>)| {
        let value = place.lenient_text()?.text;
        if SECRET_HEADERS.contains(&name.to_lowercase().as_str()) && !value.starts_with("secret:") {
            place.problem("is a secret: name it under `secrets` and write secret:NAME here");
            return None;
        }
        payload::check_secret(&place, &context.secrets);
        Some((name.to_owned(), value))
    };
    let headers = section.entries("headers").into_iter().filter_map(header).collect();
    Some(ReportFetch { url: url?, headers })
}
