//! Any YAML text as JSON values: files of other programs, which are translated and not loaded.
//!
//! Nothing is expanded and no key has a meaning here. Nesting and aliases are bounded as in
//! `belfry.yaml`.

use serde_json::{Map, Value};

use super::payload::plain_value;
use super::problems::{Problem, Problems};
use super::yaml::{self, Kind, Node};

/// One document of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The line on which it begins, from 1.
    pub line: usize,
    /// Its content.
    pub value: Value,
}

/// Reads all documents of a text; empty ones are left out. `name` is what messages call it.
///
/// A number that JSON would round, or that begins with 0, stays a text.
pub fn documents(text: &str, name: &str) -> Result<Vec<Document>, Problems> {
    let mut flaws = Vec::new();
    let roots = yaml::parse_all(text, &mut flaws);
    let problems = flaws.into_iter().map(|flaw| Problem {
        line: Some(flaw.line),
        path: flaw.path,
        what: flaw.what,
        file: name.to_owned(),
    });
    if let Some(problems) = Problems::of(problems.collect()) {
        return Err(problems);
    }
    let roots = roots.unwrap_or_default().into_iter().filter(|root| !root.is_null());
    Ok(roots.map(|root| Document { line: root.line, value: value_of(root) }).collect())
}

fn value_of(node: Node) -> Value {
    if node.is_null() {
        return Value::Null;
    }
    match node.kind {
        Kind::Scalar { text, plain: true } => plain_value(&text).unwrap_or(Value::String(text)),
        Kind::Scalar { text, .. } => Value::String(text),
        Kind::List(items) => items.into_iter().map(value_of).collect(),
        Kind::Map(entries) => {
            let entries =
                entries.into_iter().map(|entry| (entry.key.to_string(), value_of(entry.value)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_document_is_read_as_it_is_written() {
        let text = "---\nkind: A\nn: 007\nat: \"1\"\nlist: [1, true, ~]\n---\n# nothing\n---\nkind: ${B}\n";

        let documents = documents(text, "x.yaml").expect("right");

        let values: Vec<&Value> = documents.iter().map(|document| &document.value).collect();
        let first = json!({"kind": "A", "n": "007", "at": "1", "list": [1, true, null]});
        assert_eq!(values, [&first, &json!({"kind": "${B}"})]);
        assert_eq!((documents[0].line, documents[1].line), (2, 9));
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        let error = documents("a: 1\nb: [", "x.yaml").expect_err("wrong").to_string();
        assert!(error.starts_with("x.yaml:2: not valid YAML"), "{error}");
        assert_eq!(documents("", "x.yaml"), Ok(Vec::new()));
    }
}
