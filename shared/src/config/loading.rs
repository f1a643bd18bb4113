//! One loading: what was found out on the way, and the answer at its end.

use std::cell::RefCell;

use super::environment::Environment;
use super::problems::{Problem, Problems};
use super::yaml::Flaw;
use super::{Config, Unset};

/// One loading: the file's name, the variables and everything that was found out.
pub(super) struct Loading<'a> {
    /// The file's name in messages.
    pub name: &'a str,
    /// The variables.
    pub environment: Environment<'a>,
    pub problems: RefCell<Vec<Problem>>,
    pub notes: RefCell<Vec<(usize, String)>>,
    pub unset: RefCell<Vec<Unset>>,
}

impl<'a> Loading<'a> {
    pub(super) fn new(name: &'a str, environment: Environment<'a>) -> Self {
        Self {
            name,
            environment,
            problems: RefCell::default(),
            notes: RefCell::default(),
            unset: RefCell::default(),
        }
    }

    /// A variable's trimmed value. A line break inside is a copy-paste accident.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let value = self.environment.get(name)?;
        let value = value.trim();
        if value.contains(char::is_control) {
            self.variable_problem(
                name,
                "holds a line break or control character; give it as one line",
            );
            return None;
        }
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// Reports a problem of a variable.
    pub(super) fn variable_problem(&self, name: &str, what: impl Into<String>) {
        self.problems.borrow_mut().push(Problem {
            line: None,
            path: name.to_owned(),
            what: what.into(),
            file: "environment".to_owned(),
        });
    }

    /// The configuration with its notes, unless there are problems.
    pub(super) fn finish(self, config: Option<Config>) -> Result<Config, Problems> {
        for (name, what) in self.environment.problems.take() {
            self.variable_problem(&name, what);
        }
        if let Some(problems) = Problems::of(self.problems.take()) {
            return Err(problems);
        }
        let mut config =
            config.ok_or_else(|| Problems::one(self.name, None, "could not be read to its end"))?;
        let mut notes = self.notes.take();
        notes.sort();
        notes.dedup();
        config.notes = notes.into_iter().map(|(_, note)| note).collect();
        config.unset = self.unset.take();
        Ok(config)
    }

    /// Takes over a flaw of the text.
    pub(super) fn flaw(&self, flaw: Flaw) {
        self.report(Some(flaw.line), flaw.path, flaw.what);
    }

    /// Keeps a problem.
    pub(super) fn report(&self, line: Option<usize>, path: String, what: String) {
        let file = self.name.to_owned();
        self.problems.borrow_mut().push(Problem { line, path, what, file });
    }
}
