//! Any YAML text as JSON values: files of other programs, which are translated and not loaded.
//!
//! Nothing is expanded and no key has a meaning here. Nesting and aliases are bounded as in
//! `belfry.yaml`.

use serde_json::{Map, Value};

use super::payload::plain_value;
use super::problems::{Problem, Problems};
use super::yaml::{self, Kind, Node};

/// One document of a text, or an item of a list in it.
#[derive(Clone, Debug)]
pub struct Document {
    node: Node,
}

impl Document {
    /// The line on which it begins, from 1.
    pub fn line(&self) -> usize {
        self.node.line
    }

    /// The text of one of its keys.
    pub fn text(&self, key: &str) -> Option<&str> {
        let Kind::Map(entries) = &self.node.kind else { return None };
        let entry = entries.iter().find(|entry| &*entry.key == key)?;
        match &entry.value.kind {
            Kind::Scalar { text, .. } => Some(text),
            Kind::List(_) | Kind::Map(_) => None,
        }
    }

    /// The items of a list under one of its keys, each with its own line; none where there is no list.
    pub fn into_items(self, key: &str) -> Vec<Document> {
        let Kind::Map(entries) = self.node.kind else { return Vec::new() };
        match entries.into_iter().find(|entry| &*entry.key == key).map(|entry| entry.value.kind) {
            Some(Kind::List(items)) => items.into_iter().map(|node| Self { node }).collect(),
            _ => Vec::new(),
        }
    }

    /// Its content.
    pub fn into_value(self) -> Value {
        value_of(self.node)
    }
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
    Ok(roots.map(|node| Document { node }).collect())
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
        let text = "---\nkind: A\nn: 007\nat: \"1\"\nlist:\n- 1\n- true\n- ~\n---\n# nothing\n---\nkind: ${B}\n";

        let documents = documents(text, "x.yaml").expect("right");

        let lines: Vec<usize> = documents.iter().map(Document::line).collect();
        let items = documents[0].clone().into_items("list");
        let of_items: Vec<usize> = items.iter().map(Document::line).collect();
        let values: Vec<Value> = documents.into_iter().map(Document::into_value).collect();
        let first = json!({"kind": "A", "n": "007", "at": "1", "list": [1, true, null]});
        assert_eq!(values, [first, json!({"kind": "${B}"})]);
        assert_eq!((lines, of_items), (vec![2, 12], vec![6, 7, 8]));
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        let error = documents("a: 1\nb: [", "x.yaml").expect_err("wrong").to_string();
        assert!(error.starts_with("x.yaml:2: not valid YAML"), "{error}");
        assert!(documents("", "x.yaml").is_ok_and(|none| none.is_empty()));
    }
}
