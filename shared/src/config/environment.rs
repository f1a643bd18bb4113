//! Environment variables: looked up, read from `…_FILE`, and expanded inside texts.
//!
//! An empty variable counts as unset, as in `${NAME:-default}` of the shell: compose files and
//! service managers pass empty ones on for "nothing". Values are never repeated in a message.

use std::cell::RefCell;
use std::path::Path;

/// Largest file that a `…_FILE` variable may name.
const MAX_VARIABLE_FILE: u64 = 64 * 1024;

/// What stands between the braces is not repeated: it may be a password with a `${` in it.
const NO_VARIABLE: &str =
    "`${…}` names no variable; expected ${NAME} or ${NAME:-default}, and `$$` for a dollar sign";

/// How variables are looked up; tests give a table.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The variables, and what was wrong with those that were asked for.
pub(super) struct Environment<'a> {
    lookup: Lookup<'a>,
    /// (variable, what is wrong)
    pub problems: RefCell<Vec<(String, String)>>,
}

/// A text after expansion.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expanded {
    /// The text; an unset `${NAME}` stays as written.
    pub text: String,
    /// Variables without a value or default.
    pub unset: Vec<String>,
    /// True when any variable took part: the text may be a secret.
    pub from_variable: bool,
}

impl<'a> Environment<'a> {
    pub(super) fn new(lookup: Lookup<'a>) -> Self {
        Self { lookup, problems: RefCell::default() }
    }

    /// The variable's value, or the trimmed content of the file that `<name>_FILE` names.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let set = |name: &str| (self.lookup)(name).filter(|value| !value.is_empty());
        if let Some(value) = set(name) {
            return Some(value);
        }
        let pointer = format!("{name}_FILE");
        let path = set(&pointer)?;
        match read_variable_file(Path::new(&path)) {
            Ok(text) => Some(text).filter(|text| !text.is_empty()),
            Err(what) => {
                self.problems.borrow_mut().push((pointer, format!("{path}: {what}")));
                None
            }
        }
    }

    /// Expands `${NAME}` and `${NAME:-default}`; `$$` is a dollar sign, and any other `$` is one too.
    pub(super) fn expand(&self, text: &str) -> Result<Expanded, String> {
        let mut out = Expanded::default();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.text.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            rest = match after.chars().next() {
                Some('$') => {
                    out.text.push('$');
                    &after[1..]
                }
                Some('{') => {
                    let end = after
                        .find('}')
                        .ok_or("`${` has no closing `}`; write `$$` for a dollar sign")?;
                    self.substitute(&after[1..end], &mut out)?;
                    &after[end + 1..]
                }
                _ => {
                    out.text.push('$');
                    after
                }
            };
        }
        out.text.push_str(rest);
        Ok(out)
    }

    fn substitute(&self, inside: &str, out: &mut Expanded) -> Result<(), String> {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !first || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(NO_VARIABLE.to_owned());
        }
        if default.is_some_and(|default| default.contains("${")) {
            return Err("a default cannot hold another variable".to_owned());
        }
        out.from_variable = true;
        match (self.get(name), default) {
            (Some(value), _) => out.text.push_str(&value),
            (None, Some(default)) => out.text.push_str(default),
            (None, None) => {
                out.text.extend(["${", name, "}"]);
                out.unset.push(name.to_owned());
            }
        }
        Ok(())
    }
}

fn read_variable_file(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_VARIABLE_FILE {
        return Err(format!("{size} bytes are too many for a variable"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("db".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${HOST} $$".to_owned()),
            _ => None,
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str, unset: &[&str]) {
        let expanded = Environment::new(&variables).expand(text).expect("well formed");
        assert_eq!(
            (expanded.text.as_str(), expanded.unset.as_slice()),
            (expected, &unset.iter().map(ToString::to_string).collect::<Vec<_>>()[..])
        );
    }

    #[test]
    fn variables_and_defaults_expand_once() {
        check("postgres://${HOST}/x", "postgres://db/x", &[]);
        check("${NOPE:-5432}", "5432", &[]);
        check("${NOPE:-}", "", &[]);
        check("${EMPTY:-x}", "x", &[]);
        check("${NOPE} and ${EMPTY}", "${NOPE} and ${EMPTY}", &["NOPE", "EMPTY"]);
        check("$$5, $5, $", "$5, $5, $", &[]);
        check("$${HOST}", "${HOST}", &[]);
        // A value is taken as it is: what a variable holds is never expanded again.
        check("${TRICK}", "${HOST} $$", &[]);
    }

    #[test]
    fn a_malformed_variable_is_refused() {
        for text in ["${HOST", "${}", "${a b}", "${1X}", "${HOST-x}", "${HOST:-${NOPE}}"] {
            assert!(Environment::new(&variables).expand(text).is_err(), "{text}");
        }
    }
}
