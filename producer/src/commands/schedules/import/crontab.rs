//! Crontabs: of a user (`crontab -l`), or of the system with a column for the user.

use std::collections::BTreeSet;
use std::path::Path;

use shared::domain::cron::{Cron, parse_zone};

use super::{Entry, Found, Item, command};

/// Macros that are a moment and no time.
const AT_START: &str = "@reboot";

/// True for a crontab with a column for the user, by its path or by what its lines look like.
pub(super) fn is_system(file: &str, text: &str) -> bool {
    let path = Path::new(file);
    if path == Path::new("/etc/crontab") || path.starts_with("/etc/cron.d") {
        return true;
    }
    // The header of Debian's and Red Hat's /etc/crontab.
    let header = |line: &str| {
        let words: Vec<&str> =
            line.trim_start_matches(['#', ' ', '*', '\t']).split_whitespace().collect();
        words.ends_with(&["user", "command"])
            || words.windows(2).any(|pair| pair == ["user-name", "command"])
    };
    text.lines().any(|line| line.starts_with('#') && header(line))
}

/// Reads a crontab. `zone` is that of its host, if somebody knows it.
pub(super) fn read(text: &str, system: bool, zone: Option<&str>) -> Found {
    let mut found = Found {
        remarks: vec![
            "As cron does, and unlike Belfry's defaults: runs may overlap, missed ones are not made up, \
             failures are not retried. Delete overlap, catch_up and max_retry to have those."
                .to_owned(),
            "cron ends no run; here an attempt may take 5 minutes unless `timeout` says otherwise."
                .to_owned(),
        ],
        ..Found::default()
    };
    if zone.is_none() {
        found.remarks.push(
            "A crontab's times are its host's. Where no `timezone` stands, scheduler.timezone counts \
             (UTC by default): check it, or import again with --timezone."
                .to_owned(),
        );
    }
    let default: Result<_, String> = Ok(zone.map(str::to_owned));
    let mut above = Above { zone: default.clone(), variables: BTreeSet::new(), shell: None };
    for (at, raw) in text.lines().enumerate() {
        let (line, written) = (at + 1, raw.trim_start_matches([' ', '\t']));
        if written.trim().is_empty() || written.starts_with('#') {
            continue;
        }
        match variable(written) {
            // As cron has it: the host's zone again.
            Some(("CRON_TZ", "")) => above.zone.clone_from(&default),
            Some(("CRON_TZ", value)) => {
                above.zone = match parse_zone(value) {
                    Ok(zone) => Ok(Some(zone.name().to_owned())),
                    Err(error) => Err(format!("CRON_TZ on line {line}: {error}")),
                };
            }
            Some((name, value)) => {
                if name == "SHELL" {
                    above.shell = Some(value).filter(|shell| !shell.ends_with("/sh"));
                }
                above.variables.insert(name);
                found.lost.push((line, said_of(name)));
            }
            None => {
                let entry = entry(written, line, system, &above);
                found.items.push(Item { line, source: written.trim_end().to_owned(), entry });
            }
        }
    }
    found
}

/// What the lines above an entry set.
#[derive(Debug)]
struct Above<'a> {
    /// The zone of times, or why it is none.
    zone: Result<Option<String>, String>,
    variables: BTreeSet<&'a str>,
    /// The shell, where it is another than here.
    shell: Option<&'a str>,
}

/// `NAME = value`, as cron tells it from an entry: the name is followed by `=`.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim_end();
    let name = unquoted(name);
    let plain = !name.is_empty() && !name.contains([' ', '\t']) && !name.starts_with('@');
    plain.then(|| (name, unquoted(value.trim())))
}

fn unquoted(text: &str) -> &str {
    let inside = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

fn said_of(name: &str) -> String {
    match name {
        "MAILTO" | "MAILFROM" | "CONTENT_TYPE" | "CONTENT_TRANSFER_ENCODING" => {
            format!("{name}: no mail is sent; alerts.webhook tells of tasks that fail for good")
        }
        "RANDOM_DELAY" => format!("{name}: give the entries after it a `jitter`"),
        "SHELL" => format!("{name}: what needs a shell runs in /bin/sh"),
        _ => format!("{name}: commands see the environment that their worker gives them"),
    }
}

/// What the shell would put in for a variable that the crontab sets above is not there.
fn doubt_variables(variables: &BTreeSet<&str>, entry: &mut Entry) {
    let Some(script) = command::script(entry).map(str::to_owned) else { return };
    for name in variables.iter().filter(|name| command::uses(&script, name)) {
        entry.doubt(format!("it uses ${name}, which the crontab sets and its worker may not"));
    }
}

fn entry(line: &str, number: usize, system: bool, above: &Above<'_>) -> Result<Entry, String> {
    let mut entry = Entry::default();
    let zone = above.zone.clone()?;
    let (when, rest) = when(line, &mut entry)?;
    let (user, rest) = if system {
        let (user, rest) = word(rest);
        (Some(user), rest)
    } else {
        (None, rest)
    };
    let (program, input) = split_input(rest.trim());
    if program.is_empty() {
        return Err("it has no command".to_owned());
    }
    entry.name = command::name_of(&program).unwrap_or_else(|| format!("line_{number}"));
    entry.set("schedule", when);
    if let Some(zone) = zone {
        entry.set("timezone", zone);
    }
    if let Some(user) = user {
        entry.lose(format!("the user {user}: a command runs as its worker does"));
    }
    let needs_shell = command::line(&program, input.as_deref(), &mut entry);
    entry.set("overlap", "allow");
    entry.set("catch_up", "none");
    // curl --retry has said it already.
    if entry.keys.iter().all(|(key, _)| *key != "max_retry") {
        entry.set("max_retry", 0);
    }
    if let Some(shell) = above.shell.filter(|_| needs_shell) {
        entry
            .doubt(format!("it was a line of {shell:?}, the crontab's SHELL, and /bin/sh runs it"));
    }
    doubt_variables(&above.variables, &mut entry);
    Ok(entry)
}

/// The time of an entry, checked, and what follows it.
fn when<'a>(line: &'a str, entry: &mut Entry) -> Result<(String, &'a str), String> {
    if line.starts_with('@') {
        let (name, rest) = word(line);
        if name.eq_ignore_ascii_case(AT_START) {
            return Err(format!(
                "{AT_START} is no time; run `producer publish` when the machine starts"
            ));
        }
        Cron::parse(name).map_err(|error| error.to_string())?;
        return Ok((name.to_ascii_lowercase(), rest));
    }
    // SUSE and others: a minus in front keeps the run out of the system's log.
    let mut rest = line.strip_prefix('-').unwrap_or(line);
    if rest.len() < line.len() {
        entry.note("the - in front means nothing: ticks and attempts are always recorded");
    }
    let mut fields = Vec::with_capacity(5);
    for _ in 0..5 {
        let (field, behind) = word(rest);
        if field.is_empty() {
            return Err("it has fewer than five fields".to_owned());
        }
        fields.push(field);
        rest = behind;
    }
    let when = fields.join(" ");
    Cron::parse(&when).map_err(|error| error.to_string())?;
    Ok((when, rest))
}

/// The first word, and what follows it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches([' ', '\t']);
    let end = text.find([' ', '\t']).unwrap_or(text.len());
    (&text[..end], &text[end..])
}

/// The command, and the lines that cron writes to its standard input: an unescaped `%` ends the
/// command, each further one ends a line.
fn split_input(text: &str) -> (String, Option<Vec<String>>) {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'%') => {
                chars.next();
                push(&mut parts, '%');
            }
            '%' => parts.push(String::new()),
            c => push(&mut parts, c),
        }
    }
    let mut parts = parts.into_iter();
    let program = parts.next().unwrap_or_default().trim().to_owned();
    let mut input: Vec<String> = parts.collect();
    if input.is_empty() {
        return (program, None);
    }
    // A last line that is empty only ends the one before it.
    if input.len() > 1 && input.last().is_some_and(String::is_empty) {
        input.pop();
    }
    (program, Some(input))
}

fn push(parts: &mut [String], c: char) {
    if let Some(last) = parts.last_mut() {
        last.push(c);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let found = read(line, false, None);
        let seen = match &found.items[0].entry {
            Ok(entry) => {
                let key = |wanted: &str| {
                    entry.keys.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value)
                };
                let when = key("schedule").and_then(|when| when.as_str()).unwrap_or_default();
                format!("{}: {when}: {}", entry.name, key("payload").expect("a payload"))
            }
            Err(why) => format!("! {why}"),
        };
        assert!(seen.starts_with(expected), "{line}: {seen}");
    }

    #[test]
    fn entries_of_a_user() {
        check("30 2 * * 1-5 /opt/a.sh x", r#"a: 30 2 * * 1-5: {"argv":["/opt/a.sh","x"]}"#);
        check("\t@Daily /opt/a", r#"a: @daily: {"argv":["/opt/a"]}"#);
        check("* * * * * date +\\%F > /tmp/x", "date: * * * * *: ");
        check("0 0 * * SUN /opt/a", r#"a: 0 0 * * SUN: {"argv":["/opt/a"]}"#);
        check("0 0 * * * X=1 /opt/a", r#"a: 0 0 * * *: {"argv":["/bin/sh","-c","X=1 /opt/a"]}"#);
        check("-*/5 * * * * /opt/a", r#"a: */5 * * * *: {"argv":["/opt/a"]}"#);
        check("@reboot /opt/a", "! @reboot is no time");
        check("@fortnightly /opt/a", "! cron expression: ");
        check("5/15 * * * * /opt/a", "! cron field minute: ");
        check("* * * *", "! it has fewer than five fields");
        check("* * * * *", "! it has no command");
        check("0 0 31 2 * /opt/a", "! cron field day of month: never fires");
    }

    #[test]
    fn percent_signs_end_the_command_and_its_lines_of_input() {
        let split = |text: &str| {
            let (program, input) = split_input(text);
            format!("{program}|{}", input.map_or_else(|| "-".to_owned(), |lines| lines.join("/")))
        };
        assert_eq!(split("date +\\%F"), "date +%F|-");
        assert_eq!(split("mail root%Dear all,%%Bye%"), "mail root|Dear all,//Bye");
        assert_eq!(split("cat%"), "cat|");
        assert_eq!(split("a \\\\ b"), "a \\\\ b|-");
    }

    #[test]
    fn variables_are_told_from_entries_and_zones_count_from_where_they_stand() {
        let text = "MAILTO=\"ops@x.example\"\nFOO = bar\n0 1 * * * /opt/a\nCRON_TZ=Asia/Shanghai\n\
                    0 2 * * * /opt/b\nCRON_TZ=Mars\n0 3 * * * /opt/c\n";
        let found = read(text, false, None);

        let zones: Vec<String> = found
            .items
            .iter()
            .map(|item| match &item.entry {
                Ok(entry) => entry.value()["timezone"].to_string(),
                Err(why) => why.clone(),
            })
            .collect();
        assert_eq!(zones[..2], ["null", "\"Asia/Shanghai\""]);
        assert!(zones[2].starts_with("CRON_TZ on line 6: unknown time zone"), "{zones:?}");
        let lost: Vec<usize> = found.lost.iter().map(|(line, _)| *line).collect();
        assert_eq!(lost, [1, 2]);
        assert!(!format!("{:?}", found.lost).contains("ops@x.example"));
    }

    #[test]
    fn an_empty_zone_is_the_default_again() {
        let text = "CRON_TZ=Asia/Shanghai\n0 1 * * * /opt/a\nCRON_TZ=\n0 2 * * * /opt/b\n\
                    CRON_TZ=Mars\n0 3 * * * /opt/c\nCRON_TZ=\"\"\n0 4 * * * /opt/d\n";
        let zones = |zone: Option<&str>| {
            let items = read(text, false, zone).items.into_iter();
            let zone = |item: Item| Some(item.entry.ok()?.value()["timezone"].clone());
            items.map(zone).collect::<Vec<_>>()
        };

        let [asia, mine] = ["Asia/Shanghai", "Europe/Berlin"].map(|zone| Some(Value::from(zone)));
        let none = Some(Value::Null);
        assert_eq!(zones(Some("Europe/Berlin")), [asia.clone(), mine.clone(), None, mine]);
        assert_eq!(zones(None), [asia, none.clone(), None, none]);
    }

    /// A shell would put nothing in for it, and the work would be done elsewhere or undone.
    #[test]
    fn an_entry_that_uses_a_variable_of_the_crontab_is_paused_with_the_reason() {
        let text = "0 0 * * * echo $FOO\nFOO=\"a b\"\n0 1 * * * cd $FOO && ./x\n\
                    0 2 * * * /opt/b '$FOO'\n0 3 * * * cd /srv && ./x\n";
        let found = read(text, false, None);

        let doubts = found.items.iter().map(|item| {
            let entry = item.entry.as_ref().expect("an entry");
            let said = entry.said.iter().any(|said| said.contains("it uses $FOO"));
            (entry.value()["paused"] == true, said)
        });
        let doubts: Vec<_> = doubts.collect();
        assert_eq!(doubts, [(false, false), (true, true), (false, false), (false, false)]);
    }

    /// `[[ … ]]`, `source` and arrays are no words of `/bin/sh`.
    #[test]
    fn an_entry_for_another_shell_is_paused_with_the_reason() {
        let text = "0 0 * * * cd /srv && ./x\nSHELL=/bin/bash\n0 1 * * * [[ -f /a ]] && /opt/b\n\
                    0 2 * * * /opt/c --full\n0 3 * * * /bin/sh -c 'cd / && x'\n0 4 * * * cat%a\n\
                    SHELL=\"/usr/bin/sh\"\n0 5 * * * cd /srv && ./x\n";
        let found = read(text, false, None);

        let doubts = found.items.iter().map(|item| {
            let entry = item.entry.as_ref().expect("an entry");
            let said = entry.said.iter().any(|said| said.contains("a line of \"/bin/bash\""));
            (entry.value()["paused"] == true, said)
        });
        let doubts: Vec<_> = doubts.collect();
        let (same, other) = ((false, false), (true, true));
        assert_eq!(doubts, [same, other, same, same, other, same]);
    }

    #[test]
    fn the_system_s_crontab_has_a_user() {
        assert!(is_system("/etc/cron.d/php", ""));
        assert!(is_system("-", "# m h dom mon dow user\tcommand\n"));
        assert!(is_system("-", "# *  *  *  *  * user-name  command to be executed\n"));
        assert!(!is_system("crontab.txt", "# m h  dom mon dow   command\n* * * * * root x\n"));
        let found = read("17 * * * * root cd / && run-parts /etc/cron.hourly\n", true, None);
        let entry = found.items[0].entry.as_ref().expect("an entry");
        assert_eq!(entry.name, "run-parts");
        assert!(entry.said.iter().any(|what| what.contains("the user root")), "{:?}", entry.said);
    }
}
