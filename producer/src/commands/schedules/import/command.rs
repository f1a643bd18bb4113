//! A line of shell as a payload: a request where it is one, an argument list where it needs no
//! shell, else the shell with the line.

use serde_json::json;

use super::Entry;
use super::curl;
use crate::commands::output::quote;

/// The shell that cron runs lines with.
const SHELL: &str = "/bin/sh";

/// First words that only a shell understands: no program, or one whose effect ends with it. Those of
/// bash are among them, though not of every `/bin/sh`: there the line fails as it does by hand.
const BUILTINS: [&str; 36] = [
    ".", ":", "alias", "builtin", "case", "cd", "command", "declare", "eval", "exec", "exit",
    "export", "for", "function", "hash", "if", "let", "popd", "pushd", "read", "readonly",
    "return", "select", "set", "shift", "shopt", "source", "trap", "type", "typeset", "ulimit",
    "umask", "unset", "until", "wait", "while",
];

/// Endings of a line that throw its output away; those that others end with come last.
const SILENCED: [&str; 11] = [
    "2>&1",
    ">&/dev/null",
    "&>/dev/null",
    "&> /dev/null",
    "1>/dev/null",
    "1> /dev/null",
    "2>/dev/null",
    "2> /dev/null",
    ">/dev/null",
    "> /dev/null",
    "</dev/null",
];

/// Sets task type and payload of a line of shell; `input` are lines for its standard input. True where
/// it needs a shell.
pub(super) fn line(line: &str, input: Option<&[String]>, entry: &mut Entry) -> bool {
    if let Some(input) = input {
        let quoted: Vec<String> = input.iter().map(|line| quote(line)).collect();
        let piped = format!("printf '%s\\n' {} | {{ {line}\n}}", quoted.join(" "));
        return shell(&piped, entry);
    }
    let (loud, was_silenced) = unsilenced(line);
    let is_program = |word: &String| !BUILTINS.contains(&word.as_str());
    let Some(words) = words(loud).filter(|words| words.first().is_some_and(is_program)) else {
        return shell(line, entry);
    };
    if was_silenced {
        entry.note("the output went to /dev/null; here the attempt keeps it");
    }
    arguments(&words, entry);
    false
}

/// Sets task type and payload of an argument list.
pub(super) fn arguments(words: &[String], entry: &mut Entry) {
    if let Some(request) = curl::request(words) {
        request.set(entry);
        return;
    }
    if !words[0].starts_with('/') {
        entry.note(format!("{:?} is no absolute path; write where it lies", words[0]));
    }
    entry.set("task_type", "command");
    entry.set("payload", json!({ "argv": words }));
}

fn shell(line: &str, entry: &mut Entry) -> bool {
    entry.set("task_type", "command");
    entry.set("payload", json!({ "argv": [SHELL, "-c", line] }));
    true
}

/// The line that a shell is to run, where the entry has one.
pub(super) fn script(entry: &Entry) -> Option<&str> {
    let (_, payload) = entry.keys.iter().find(|(key, _)| *key == "payload")?;
    let [shell, option, script] = payload["argv"].as_array()?.as_slice() else { return None };
    let is_shell = shell == SHELL && option == "-c";
    script.as_str().filter(|_| is_shell)
}

/// True when a line of shell says `$NAME` or `${NAME…}`; for HOME, `~` too. In quotes as well: another
/// shell that the line runs may read it.
pub(super) fn uses(script: &str, name: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = script.split('$').skip(1).any(|after| {
        let after = after.strip_prefix('{').unwrap_or(after).trim_start_matches(['#', '!']);
        after.strip_prefix(name).is_some_and(|rest| !rest.starts_with(of_name))
    });
    let is_home = |word: &str| word == "~" || word.starts_with("~/");
    named || name == "HOME" && script.split([' ', '\t', '"', '\'', '=', ':']).any(is_home)
}

/// The line without the redirections of its output to nowhere.
fn unsilenced(line: &str) -> (&str, bool) {
    let mut rest = line.trim();
    while let Some(shorter) = SILENCED.iter().find_map(|ending| rest.strip_suffix(ending)) {
        // Another descriptor, or `>>`: left to the shell.
        if shorter.ends_with(['>', '<', '&']) || shorter.ends_with(|c: char| c.is_ascii_digit()) {
            break;
        }
        rest = shorter.trim_end();
    }
    (rest, rest.len() < line.trim().len())
}

/// The words of a line that needs no shell; `None` where it does.
pub(super) fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let (text, rest) = chars.as_str().split_once('\'')?;
                word.get_or_insert_default().push_str(text);
                chars = rest.chars();
            }
            '"' => chars = quoted(chars.as_str(), word.get_or_insert_default())?.chars(),
            '\\' => word.get_or_insert_default().push(chars.next().filter(|c| *c != '\n')?),
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '[' | '\n' => {
                return None;
            }
            '~' | '#' | '!' | '{' if word.is_none() => return None,
            // NAME=value before a program sets a variable.
            '=' if words.is_empty() => return None,
            '{' | '}' => return None,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// Takes a text in double quotes; answers what is behind it.
fn quoted<'a>(text: &'a str, word: &mut String) -> Option<&'a str> {
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some(chars.as_str()),
            '$' | '`' => return None,
            '\\' => match chars.next()? {
                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                '\n' => {}
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

/// A name for a schedule: of the first program that is not only about the surroundings.
pub(super) fn name_of(line: &str) -> Option<String> {
    const SURROUNDINGS: [&str; 9] =
        ["cd", "export", ".", "source", "test", "[", "set", "umask", "sleep"];
    let parts = line.split(['&', ';', '|', '\n']).map(str::trim).filter(|part| !part.is_empty());
    let program = parts
        .filter_map(|part| part.split_ascii_whitespace().find(|word| !word.contains('=')))
        .find(|word| !SURROUNDINGS.contains(word))?;
    let base = program.trim_matches(['"', '\'', '(', ')', '{']).rsplit('/').next()?;
    let stem =
        base.rsplit_once('.').map_or(base, |(stem, _)| if stem.is_empty() { base } else { stem });
    slug(stem)
}

/// Letters, digits, `-` and `_`; `None` where nothing is left.
pub(super) fn slug(text: &str) -> Option<String> {
    const LONGEST: usize = 60;
    let kept: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .take(LONGEST)
        .collect();
    let kept = kept.trim_matches(['_', '-', '.']);
    (!kept.is_empty()).then(|| kept.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let mut entry = Entry::default();
        super::line(line, None, &mut entry);
        let payload = &entry.keys.iter().find(|(key, _)| *key == "payload").expect("a payload").1;
        assert_eq!(payload["argv"].to_string(), expected, "{line}");
    }

    #[test]
    fn a_line_without_shell_is_an_argument_list() {
        check("/usr/bin/backup --full /srv", r#"["/usr/bin/backup","--full","/srv"]"#);
        check(
            r#"/bin/x 'a b' "c \"d\"" e\ f "" --k=v"#,
            r#"["/bin/x","a b","c \"d\"","e f","","--k=v"]"#,
        );
        for silenced in
            [">/dev/null 2>&1", "2> /dev/null", "&> /dev/null", "1>/dev/null </dev/null"]
        {
            check(&format!("/bin/x 1 {silenced}"), r#"["/bin/x","1"]"#);
        }
        check("curl 'https://a.example/[1-3]'", r#"["curl","https://a.example/[1-3]"]"#);
        check("/bin/x --format '{{.Names}}'", r#"["/bin/x","--format","{{.Names}}"]"#);
    }

    #[test]
    fn a_line_with_shell_keeps_it() {
        for line in [
            "cd /srv && ./run",
            "/bin/x > /var/log/x.log 2>&1",
            "/bin/x 3>/dev/null",
            "/bin/x >>/dev/null",
            "/bin/x $HOME",
            "/bin/x \"$HOME\"",
            "/bin/x *.txt",
            "LANG=C /bin/x",
            "/bin/x ~/y",
            "/bin/x 'open",
            "/bin/x {a,b}",
            "/bin/x # why",
        ] {
            check(line, &json!(["/bin/sh", "-c", line]).to_string());
        }
    }

    #[test]
    fn a_line_that_begins_with_a_word_of_the_shell_keeps_it() {
        for line in [
            ". /etc/profile",
            "source /etc/profile >/dev/null 2>&1",
            "exec /bin/x --full",
            "eval /bin/x",
            "umask 022",
            "ulimit -n 100",
            "export A=b",
            ":",
            "cd /srv",
            "set -e",
            "unset A",
            "trap - TERM",
            "wait",
            "if /bin/x; then /bin/y; fi",
            "for i in 1 2; do /bin/x; done",
            "while /bin/x; do /bin/y; done",
            "until /bin/x; do /bin/y; done",
            "case a in a) /bin/x;; esac",
            "(/bin/x)",
            "{ /bin/x; }",
            "! /bin/x",
            "\"cd\" /srv",
        ] {
            check(line, &json!(["/bin/sh", "-c", line]).to_string());
        }
        check("/bin/x cd", r#"["/bin/x","cd"]"#);
        check("/bin/cd /srv", r#"["/bin/cd","/srv"]"#);
    }

    #[test]
    fn a_variable_is_used_by_its_whole_name() {
        for script in ["a $FOO", "a \"${FOO}\"", "a ${FOO:-x}", "x=${#FOO}", "a '$FOO'", "$FOO/x"] {
            assert!(uses(script, "FOO"), "{script}");
        }
        for script in ["a FOO", "a $FOOD", "a ${FOO_D}", "a $1FOO", "a $ FOO"] {
            assert!(!uses(script, "FOO"), "{script}");
        }
        assert!(uses("cd ~/x && y", "HOME") && uses("a $HOME", "HOME"));
        assert!(!uses("a x~ y", "HOME") && !uses("cd ~/x", "FOO"));
    }

    #[test]
    fn input_is_piped_line_by_line() {
        let mut entry = Entry::default();
        let input = ["it's".to_owned(), String::new()];
        super::line("mail -s x root", Some(&input), &mut entry);
        assert_eq!(
            entry.keys[1].1["argv"][2],
            "printf '%s\\n' 'it'\\''s' '' | { mail -s x root\n}"
        );
    }

    #[test]
    fn a_name_is_the_programs() {
        for (line, expected) in [
            ("/usr/local/bin/backup.sh --full", Some("backup")),
            ("cd /srv/app && ./bin/run_all | tee x", Some("run_all")),
            ("LANG=C nice /bin/x", Some("nice")),
            ("\"/opt/my tool\" x", Some("my")),
            ("test -x /usr/sbin/anacron || run-parts /etc/cron.daily", Some("run-parts")),
            (";;", None),
        ] {
            assert_eq!(name_of(line).as_deref(), expected, "{line}");
        }
    }
}
