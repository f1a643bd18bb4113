//! The typed reader: walks the tree, checks every value, and collects what is wrong.
//!
//! A reading function answers `None` after it has reported the problem, so callers go on with the
//! rest of the file. It never repeats a value that came from a variable or was read as a secret.

use std::ops::RangeInclusive;
use std::time::Duration;

use secrecy::SecretString;

use super::environment::Expanded;
use super::keys::{INERT, Keys};
use super::loading::Loading;
use super::problems::suggestion;
use super::yaml::{Entry, Kind, Node, join};
use super::{Unset, duration};

/// A value's place: what is read, and where it stands.
#[derive(Clone)]
pub(super) struct Place<'a> {
    pub loading: &'a Loading<'a>,
    pub node: &'a Node,
    pub path: String,
    pub line: usize,
}

/// A mapping with fixed keys.
pub(super) struct Section<'a> {
    place: Option<Place<'a>>,
    entries: &'a [Entry],
}

impl<'a> Section<'a> {
    /// The key's value; absent and null are the same.
    pub(super) fn get(&self, key: &str) -> Option<Place<'a>> {
        let place = self.place.as_ref()?;
        let entry = self.entries.iter().find(|entry| &*entry.key == key)?;
        (!entry.value.is_null()).then(|| place.child(entry))
    }

    /// As `get`, and a problem where it is missing.
    pub(super) fn required(&self, key: &str) -> Option<Place<'a>> {
        let value = self.get(key);
        if let (None, Some(place)) = (&value, &self.place) {
            place.problem(format!("`{key}` is missing"));
        }
        value
    }

    /// The key's mapping or list, whole: see [`Place::whole`].
    pub(super) fn whole(&self, key: &str) -> Option<Place<'a>> {
        self.get(key)?.whole()
    }

    /// A nested mapping with fixed keys; an absent one has no keys.
    pub(super) fn section(&self, key: &str, keys: Keys) -> Section<'a> {
        match self.whole(key) {
            Some(place) => place.section(keys),
            None => Section { place: None, entries: &[] },
        }
    }

    /// The entries of a mapping with free names.
    pub(super) fn entries(&self, key: &str) -> Vec<(&'a str, Place<'a>)> {
        self.whole(key).map(|place| place.entries()).unwrap_or_default()
    }

    /// As [`entries`](Self::entries), of mappings and lists: see [`Place::whole_entries`].
    pub(super) fn whole_entries(&self, key: &str) -> Vec<(&'a str, Place<'a>)> {
        self.whole(key).map(|place| place.whole_entries()).unwrap_or_default()
    }

    /// The section's own place, for problems between its keys.
    pub(super) fn place(&self) -> Option<&Place<'a>> {
        self.place.as_ref()
    }
}

impl<'a> Place<'a> {
    /// Reports a problem here.
    pub(super) fn problem(&self, what: impl Into<String>) {
        self.loading.report(Some(self.line), self.path.clone(), what.into());
    }

    /// Says something that does no harm.
    pub(super) fn note(&self, what: &str) {
        let path = if self.path.is_empty() { String::new() } else { format!("{}: ", self.path) };
        let text = format!("{}:{}: {path}{what}", self.loading.name, self.line);
        self.loading.notes.borrow_mut().push((self.line, text));
    }

    fn child(&self, entry: &'a Entry) -> Place<'a> {
        Place {
            loading: self.loading,
            node: &entry.value,
            path: join(&self.path, &entry.key),
            line: entry.line,
        }
    }

    /// A mapping or a list, or what stands in its place. A variable without a value does not: as
    /// everywhere, it is noted and counts as absent.
    pub(super) fn whole(self) -> Option<Place<'a>> {
        match self.variable() {
            Some(expanded) if !expanded.unset.is_empty() => {
                self.note_unset(&expanded.unset);
                None
            }
            Some(expanded) => Some(self).filter(|_| !expanded.text.trim().is_empty()),
            None => Some(self),
        }
    }

    /// True for a scalar with a variable that has no value.
    pub(super) fn is_unset(&self) -> bool {
        self.variable().is_some_and(|expanded| !expanded.unset.is_empty())
    }

    /// A scalar in which a variable takes part.
    fn variable(&self) -> Option<Expanded> {
        let Kind::Scalar { text, .. } = &self.node.kind else { return None };
        let expanded = self.loading.environment.expand(text).ok()?;
        Some(expanded).filter(|expanded| expanded.from_variable)
    }

    /// Says that something else was expected.
    pub(super) fn expected(&self, what: &str) {
        let found = match &self.node.kind {
            Kind::Scalar { .. } => "a single value",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        };
        self.problem(format!("expected {what}, found {found}"));
    }

    /// Says that a mapping or a list was expected, unless its place is empty ([`Place::whole`]).
    fn expected_whole(&self, what: &str) {
        if let Some(place) = self.clone().whole() {
            place.expected(what);
        }
    }

    /// Reads a mapping with fixed keys; each unknown one is a problem.
    pub(super) fn section(self, keys: Keys) -> Section<'a> {
        let Kind::Map(entries) = &self.node.kind else {
            self.expected_whole("a mapping (key: value)");
            return Section { place: None, entries: &[] };
        };
        for entry in entries {
            let child = self.child(entry);
            if !keys.names.contains(&&*entry.key) {
                let inert = INERT.iter().map(|(path, _)| *path);
                let live = keys
                    .names
                    .iter()
                    .copied()
                    .filter(|name| !inert.clone().any(|path| path == join(keys.section, name)));
                child.problem(format!("unknown key{}", suggestion(&entry.key, live)));
            } else if let Some((_, why)) = INERT.iter().find(|(path, _)| *path == child.path) {
                child.note(why);
            }
        }
        Section { entries, place: Some(self) }
    }

    /// The entries of a mapping with free names.
    pub(super) fn entries(&self) -> Vec<(&'a str, Place<'a>)> {
        let Kind::Map(entries) = &self.node.kind else {
            self.expected_whole("a mapping (name: value)");
            return Vec::new();
        };
        entries.iter().map(|entry| (&*entry.key, self.child(entry))).collect()
    }

    /// Those whose mapping or list is there: see [`whole`](Self::whole).
    pub(super) fn whole_entries(&self) -> Vec<(&'a str, Place<'a>)> {
        let entries = self.entries().into_iter();
        entries.filter_map(|(name, place)| Some((name, place.whole()?))).collect()
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Vec<Place<'a>> {
        let Kind::List(items) = &self.node.kind else {
            self.expected_whole("a list");
            return Vec::new();
        };
        let place = |(index, node): (usize, &'a Node)| Place {
            loading: self.loading,
            node,
            path: format!("{}[{index}]", self.path),
            line: node.line,
        };
        items.iter().enumerate().map(place).collect()
    }

    /// A scalar after expansion; `None` after a report.
    pub(super) fn expanded(&self, expected: &str) -> Option<Expanded> {
        let Kind::Scalar { text, .. } = &self.node.kind else {
            self.expected(expected);
            return None;
        };
        if text.contains('\0') {
            self.problem("holds a NUL character, which Postgres cannot keep");
            return None;
        }
        match self.loading.environment.expand(text) {
            Ok(expanded) if expanded.text.contains('\0') => {
                self.problem("a variable in it holds a NUL character");
                None
            }
            Ok(expanded) => Some(expanded),
            Err(what) => {
                self.problem(what);
                None
            }
        }
    }

    /// A scalar's text. With an unset variable it is a note and counts as absent.
    fn scalar(&self, expected: &str) -> Option<Expanded> {
        let expanded = self.expanded(expected)?;
        if expanded.unset.is_empty() {
            return Some(expanded);
        }
        self.note_unset(&expanded.unset);
        None
    }

    /// Notes variables without a value, and remembers where they are missed.
    pub(super) fn note_unset(&self, variables: &[String]) {
        for variable in variables {
            self.note(&format!("the variable {variable} is not set"));
            self.loading.unset.borrow_mut().push(Unset {
                line: self.line,
                path: self.path.clone(),
                variable: variable.clone(),
            });
        }
    }

    /// A text; empty counts as absent, as `${NAME:-}` says.
    pub(super) fn text(&self) -> Option<String> {
        Some(self.scalar("a text")?.text).filter(|text| !text.is_empty())
    }

    /// A text that must be there: an empty one or an unset variable is a problem.
    pub(super) fn required_text(&self) -> Option<String> {
        let expanded = self.expanded("a text")?;
        match expanded.unset.first() {
            Some(variable) => {
                self.problem(format!(
                    "the variable {variable} is not set, and this value is needed"
                ));
                None
            }
            None if expanded.text.trim().is_empty() => {
                self.problem("must not be empty");
                None
            }
            None => Some(expanded.text),
        }
    }

    /// A text in which an unset `${NAME}` is noted and stays as written, for values that only
    /// matter once they are used.
    pub(super) fn lenient_text(&self) -> Option<Expanded> {
        let expanded = self.expanded("a text")?;
        self.note_unset(&expanded.unset);
        Some(expanded)
    }

    /// A trimmed secret. A line break inside is a copy-paste accident that no header survives.
    pub(super) fn secret(&self) -> Option<SecretString> {
        let text = self.scalar("a text")?.text;
        let text = text.trim();
        if text.contains(char::is_control) {
            self.problem("holds a line break or control character; give it as one line");
            return None;
        }
        (!text.is_empty()).then(|| SecretString::from(text))
    }

    /// A whole number within bounds.
    pub(super) fn integer(&self, bounds: RangeInclusive<u64>) -> Option<u64> {
        let expected = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        let scalar = self.scalar(&expected)?;
        let number = scalar.text.trim().parse().ok().filter(|number| bounds.contains(number));
        if number.is_none() {
            self.problem(format!("expected {expected}{}", shown(&scalar)));
        }
        number
    }

    /// A number that is not negative.
    pub(super) fn amount(&self) -> Option<f64> {
        let scalar = self.scalar("a number")?;
        let number = scalar.text.trim().parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            self.problem(format!("expected a number, 0 or more{}", shown(&scalar)));
        }
        number
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self) -> Option<bool> {
        let scalar = self.scalar("true or false")?;
        match scalar.text.trim() {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => {
                self.problem(format!("expected true or false{}", shown(&scalar)));
                None
            }
        }
    }

    /// A duration, zero included.
    pub(super) fn duration(&self) -> Option<Duration> {
        let scalar = self.scalar("a duration")?;
        let read = duration::parse(&scalar.text);
        read.map_err(|what| self.problem(format!("{what}{}", shown(&scalar)))).ok()
    }

    /// A duration that must take some time.
    pub(super) fn positive_duration(&self) -> Option<Duration> {
        let duration = self.duration()?;
        if duration.is_zero() {
            self.problem("must be longer than 0");
            return None;
        }
        Some(duration)
    }

    /// One word of a choice, in any case.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let scalar = self.scalar("a word")?;
        let word = scalar.text.trim().to_lowercase();
        let found = choices.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        if found.is_none() {
            let names = choices.iter().map(|(name, _)| *name);
            self.problem(format!("unknown value{}{}", shown(&scalar), suggestion(&word, names)));
        }
        found
    }
}

/// ", found `x`", unless a variable took part.
pub(super) fn shown(scalar: &Expanded) -> String {
    const LONGEST_SHOWN: usize = 60;
    if scalar.from_variable {
        return ", found another value in the variable".to_owned();
    }
    if scalar.text.chars().count() > LONGEST_SHOWN {
        return ", found a long text".to_owned();
    }
    format!(", found {:?}", scalar.text)
}
