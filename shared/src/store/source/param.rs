//! A JSON value as a parameter of whatever type the statement gives it.

use std::error::Error as StdError;

use bytes::BytesMut;
use serde_json::Value;
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type, to_sql_checked};

/// Sent as text: the server reads it by the parameter's own type, as it reads a literal.
#[derive(Debug)]
pub(super) struct Param<'a>(pub &'a Value);

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        let is_json = [Type::JSON, Type::JSONB].contains(ty);
        let is_array = matches!(ty.kind(), Kind::Array(_));
        let text = match self.0 {
            Value::Null => return Ok(IsNull::Yes),
            value if is_json => value.to_string(),
            Value::Array(items) if is_array => array(items),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// `{"a","b",NULL}`: every element quoted, nested lists as nested braces.
fn array(items: &[Value]) -> String {
    let element = |item: &Value| match item {
        Value::Null => "NULL".to_owned(),
        Value::Array(items) => array(items),
        Value::String(text) => quoted(text),
        other => quoted(&other.to_string()),
    };
    format!("{{{}}}", items.iter().map(element).collect::<Vec<_>>().join(","))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: &Value, ty: &Type, expected: Option<&str>) {
        let mut out = BytesMut::new();
        let null = Param(value).to_sql(ty, &mut out).expect("always");
        let seen =
            matches!(null, IsNull::No).then(|| String::from_utf8(out.to_vec()).expect("text"));
        assert_eq!(seen.as_deref(), expected, "{value} as {ty}");
    }

    #[test]
    fn a_value_is_written_as_its_type_reads_it() {
        check(&json!(null), &Type::INT4, None);
        check(&json!(7), &Type::INT4, Some("7"));
        check(&json!("7"), &Type::INT4, Some("7"));
        check(&json!(true), &Type::BOOL, Some("true"));
        check(&json!("2026-11-30"), &Type::DATE, Some("2026-11-30"));
        check(&json!("it's"), &Type::TEXT, Some("it's"));
        check(&json!("text"), &Type::JSONB, Some("\"text\""));
        check(&json!([1, "a"]), &Type::JSONB, Some("[1,\"a\"]"));
        check(&json!({"a": 1}), &Type::TEXT, Some("{\"a\":1}"));
        check(&json!(["a\"b\\", null, 1]), &Type::TEXT_ARRAY, Some(r#"{"a\"b\\",NULL,"1"}"#));
        check(&json!([[1], [2]]), &Type::INT4_ARRAY, Some(r#"{{"1"},{"2"}}"#));
    }
}
