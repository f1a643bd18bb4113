//! What is wrong with a configuration: all of it at once, each with its place.
//!
//! No value of the file or of a variable is repeated here unless it is certain to be no secret.

use std::fmt;

use super::keys;

/// One thing that is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Problem {
    /// Line in the file, from 1; `None` for a problem of the environment or of the whole file.
    pub line: Option<usize>,
    /// Where: `tasks[3].schedule`, or a variable's name; empty for the whole file.
    pub path: String,
    /// What is wrong and what to do.
    pub what: String,
    /// The file's name, or `environment`.
    pub file: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)
    }
}

/// Everything that keeps a configuration from being used; callers print it and exit 2.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Sorts by line; what has none comes first. `None` when there is no problem.
    pub(super) fn of(mut problems: Vec<Problem>) -> Option<Self> {
        problems.sort();
        problems.dedup();
        (!problems.is_empty()).then_some(Self(problems))
    }

    /// A single problem of the file as a whole.
    pub(super) fn one(file: &str, line: Option<usize>, what: impl Into<String>) -> Self {
        Self(vec![Problem { line, path: String::new(), what: what.into(), file: file.to_owned() }])
    }

    /// In the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// "; did you mean `x`?", or the whole choice when nothing is near and the list is short.
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(near) = nearest(word, known.iter().copied()) {
        return format!("; did you mean `{near}`?");
    }
    match known.len() {
        1..=20 => format!("; known: {}", known.join(", ")),
        _ => String::new(),
    }
}

/// The known word that was probably meant, if one is near enough.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = snake_case(word);
    let synonym = keys::SYNONYMS.iter().find(|(other, _)| *other == plain).map(|(_, key)| *key);
    known
        .into_iter()
        .map(|candidate| {
            if Some(candidate) == synonym {
                return (0, candidate);
            }
            (strsim::damerau_levenshtein(&plain, &candidate.to_lowercase()), candidate)
        })
        .min_by_key(|(distance, _)| *distance)
        // A third of the letters may be wrong; beyond that a guess misleads.
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1))
        .map(|(_, candidate)| candidate)
}

/// `maxRetry` and `max-retry` as `max_retry`, so that the habit of other tools is recognised.
fn snake_case(word: &str) -> String {
    let mut out = String::with_capacity(word.len() + 4);
    let mut lower_before = false;
    for c in word.chars() {
        if c.is_uppercase() && lower_before {
            out.push('_');
        }
        lower_before = c.is_lowercase() || c.is_ascii_digit();
        if c == '-' {
            out.push('_');
        } else {
            out.extend(c.to_lowercase());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Option<&str>) {
        assert_eq!(nearest(word, ["max_retry", "overlap", "schedule", "dsn"]), expected);
    }

    #[test]
    fn the_nearest_known_word_is_named_and_far_ones_are_not() {
        check("max_retrys", Some("max_retry"));
        check("maxRetry", Some("max_retry"));
        check("max-retry", Some("max_retry"));
        check("cron", Some("schedule"));
        check("concurrencyPolicy", Some("overlap"));
        check("dns", Some("dsn"));
        check("colour", None);
    }
}
