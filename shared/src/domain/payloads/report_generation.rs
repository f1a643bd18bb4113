//! `report_generation`: one report of the configuration, for one date.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Payload, is_unrendered};

/// Longest date, in bytes: an RFC 3339 instant with room to spare.
const MAX_DATE_BYTES: usize = 64;

/// One report for one date.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportGeneration {
    /// Name in `reports`.
    pub report: String,
    /// What it is about.
    #[serde(default)]
    pub date: Option<String>,
}

impl Payload for ReportGeneration {
    const TYPE: &'static str = "report_generation";

    fn schema() -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "report_generation",
            "description": "Runs the queries and fetches of a report of belfry.yaml, asks a model for a summary where the report wants one, renders its template, and keeps the result: one artifact per report and date.",
            "type": "object",
            "required": ["report"],
            "additionalProperties": false,
            "properties": {
                "report": {"type": "string", "description": "name in reports: of belfry.yaml"},
                "date": {"type": "string", "maxLength": MAX_DATE_BYTES, "description": "what the report is about; without it the planned instant of the schedule, or else today"},
            },
            "examples": [
                {"report": "daily_orders", "date": "{{ scheduled_date }}"},
                {"report": "market_watch"},
            ],
        })
    }

    fn judge(&self) -> Result<(), String> {
        if self.report.trim().is_empty() {
            return Err("report is empty; name one of reports: in belfry.yaml".to_owned());
        }
        match self.date.as_deref() {
            Some(date) if is_unrendered(date) => Ok(()),
            Some(date) if date.trim().is_empty() => Err("date is empty; drop it".to_owned()),
            Some(date) if date.len() > MAX_DATE_BYTES || date.contains(char::is_control) => Err(
                format!("date is longer than {MAX_DATE_BYTES} bytes or holds control characters"),
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_name_and_perhaps_a_date() {
        for (payload, right) in [
            (json!({"report": "r"}), true),
            (json!({"report": "r", "date": "2026-11-30"}), true),
            (json!({"report": "r", "date": "{{ scheduled_date }}"}), true),
            (json!({"report": ""}), false),
            (json!({"report": "r", "date": ""}), false),
            (json!({"report": "r", "date": "x".repeat(65)}), false),
            (json!({"report": "r", "day": "2026-11-30"}), false),
        ] {
            assert_eq!(ReportGeneration::read(&payload).is_ok(), right, "{payload}");
        }
    }
}
