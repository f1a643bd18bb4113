//! YAML text into a tree whose every node knows its line.
//!
//! Built from the parser's events rather than from a loaded document, because the tree must keep
//! numbers as written, must report every duplicate key instead of the first, and must bound nesting
//! and aliases before they cost anything. The items of one list may be many: they are handed over
//! one by one and not kept. It knows nothing of what the keys mean.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde::{Deserialize, Serialize};

/// Deepest nesting; recursion below this is certain to fit any stack.
const MAX_DEPTH: usize = 64;
/// What all aliases together may stand for, in nodes: a "billion laughs" file stops here.
const MAX_ALIASED: usize = 20_000;

/// A value and where it stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Node {
    /// Line, from 1.
    pub line: usize,
    /// The value.
    pub kind: Kind,
    /// Nodes in all, with long texts counted by their length: the price of repeating it.
    weight: usize,
}

/// What a node is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Kind {
    /// A scalar as written. `plain` ones may be numbers, booleans or null.
    Scalar { text: String, plain: bool },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in the order of the file.
    Map(Vec<Entry>),
}

/// One entry of a mapping.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The key as written; one text for all entries that have it.
    pub key: Rc<str>,
    /// The key's line.
    pub line: usize,
    /// The value.
    pub value: Node,
}

/// A problem of the text itself, before any key has a meaning.
#[derive(Debug)]
pub(super) struct Flaw {
    pub line: usize,
    pub path: String,
    pub what: String,
}

impl Node {
    /// An empty mapping: what an absent file says.
    pub(super) fn empty() -> Self {
        Self { line: 0, kind: Kind::Map(Vec::new()), weight: 1 }
    }

    /// True for an empty or `null` value: the key is there and says nothing.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }
}

/// A list under a key of the root whose items are handed over, and left out of the tree: each lives
/// as long as `take` needs it. One with an anchor or out of an alias stays in the tree.
pub(super) struct Stream<'a> {
    /// The key of the root.
    pub key: &'a str,
    /// Called with each item, in the order of the file.
    pub take: &'a mut dyn FnMut(Node),
}

/// Reads one document. Flaws that do not hide others are collected in `flaws`; `None` means that
/// the text could not be read to its end.
pub(super) fn parse<'a>(text: &str, flaws: &'a mut Vec<Flaw>, stream: Stream<'a>) -> Option<Node> {
    let root = read(text, flaws, Some(stream))?.pop();
    Some(root.filter(|root| !root.is_null()).unwrap_or_else(Node::empty))
}

/// Reads all documents of a text.
pub(super) fn parse_all(text: &str, flaws: &mut Vec<Flaw>) -> Option<Vec<Node>> {
    read(text, flaws, None)
}

/// Reads one document with a list to hand over, or all documents.
fn read<'a>(text: &str, flaws: &'a mut Vec<Flaw>, stream: Option<Stream<'a>>) -> Option<Vec<Node>> {
    let mut builder = Builder {
        flaws,
        open: Vec::new(),
        anchors: HashMap::new(),
        aliased: 0,
        keys: HashSet::new(),
        stream,
        roots: Vec::new(),
    };
    for event in Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        let step = match event {
            Ok((event, span)) => builder.take(event, span.start.line()),
            Err(error) => {
                // A text that breaks off is blamed on a line behind its last one.
                let line = error.marker().line().clamp(1, text.lines().count().max(1));
                let written = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
                Err(flaw(
                    line,
                    format!("not valid YAML: {}{}", error.info(), hint(written, error.info())),
                ))
            }
        };
        if let Err(flaw) = step {
            builder.flaws.push(flaw);
            return None;
        }
    }
    Some(builder.roots)
}

/// A collection that is not yet closed.
struct Open {
    line: usize,
    anchor: usize,
    kind: Kind,
    /// A key that waits for its value.
    key: Option<(Rc<str>, usize)>,
    /// Lines of the keys so far.
    seen: HashMap<Rc<str>, usize>,
    weight: usize,
    /// Items that were handed over; `None` for what keeps its own.
    streamed: Option<usize>,
}

/// What a tag says about its scalar.
enum Tagged {
    /// Nothing.
    No,
    /// `!!str` or `!`: a text, whatever it looks like.
    Text,
    /// A tag of someone else's.
    Foreign,
}

struct Builder<'a> {
    flaws: &'a mut Vec<Flaw>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    aliased: usize,
    /// Every key so far: a file of many entries has few.
    keys: HashSet<Rc<str>>,
    /// The list whose items are handed over; without one, any number of documents is expected.
    stream: Option<Stream<'a>>,
    roots: Vec<Node>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Flaw> {
        match event {
            Event::DocumentStart(_) if self.stream.is_some() && !self.roots.is_empty() => {
                Err(flaw(line, "a second document begins here; keep one and remove this `---`"))
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
            Event::Scalar(text, style, anchor, tag) => {
                let weight = 1 + text.len() / 64;
                let kind = match self.tag(tag.as_deref(), line) {
                    Tagged::No => {
                        let plain = style == ScalarStyle::Plain;
                        Kind::Scalar { text: text.into_owned(), plain }
                    }
                    Tagged::Text => Kind::Scalar { text: text.into_owned(), plain: false },
                    // Reported; as null it says nothing more.
                    Tagged::Foreign => Kind::Scalar { text: String::new(), plain: true },
                };
                self.place(Node { line, kind, weight }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.tag(tag.as_deref(), line);
                self.begin(Kind::List(Vec::new()), anchor, line)
            }
            Event::MappingStart(anchor, tag) => {
                self.tag(tag.as_deref(), line);
                self.begin(Kind::Map(Vec::new()), anchor, line)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor, line),
        }
    }

    /// Reports foreign tags: `!env X` or `!include x` would silently mean nothing.
    fn tag(&mut self, tag: Option<&Tag>, line: usize) -> Tagged {
        match tag {
            None => Tagged::No,
            Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => Tagged::Text,
            Some(tag) if tag.is_yaml_core_schema() => Tagged::No,
            Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => Tagged::Text,
            Some(tag) => {
                let what = format!("the tag {tag} means nothing here; remove it");
                self.flaws.push(flaw(line, what));
                Tagged::Foreign
            }
        }
    }

    fn begin(&mut self, kind: Kind, anchor: usize, line: usize) -> Result<(), Flaw> {
        if self.open.len() >= MAX_DEPTH {
            return Err(flaw(line, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let streamed = self.is_streamed(&kind, anchor).then_some(0);
        let seen = HashMap::new();
        self.open.push(Open { line, anchor, kind, key: None, seen, weight: 1, streamed });
        Ok(())
    }

    /// True for the list that is handed over: what an alias may repeat is kept, and a second one
    /// under the same key is a flaw of which nothing is read.
    fn is_streamed(&self, kind: &Kind, anchor: usize) -> bool {
        let (Some(stream), [root]) = (&self.stream, self.open.as_slice()) else { return false };
        let here = root.key.as_ref().is_some_and(|(key, _)| &**key == stream.key);
        here && matches!(kind, Kind::List(_)) && anchor == 0 && !root.seen.contains_key(stream.key)
    }

    fn end(&mut self) -> Result<(), Flaw> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let mut node = Node { line: open.line, kind: open.kind, weight: open.weight };
        match &mut node.kind {
            Kind::Map(entries) => {
                self.merge(entries);
                entries.shrink_to_fit();
            }
            Kind::List(items) => items.shrink_to_fit(),
            Kind::Scalar { .. } => {}
        }
        self.place(node, open.anchor)
    }

    /// A whole copy of what an anchor named, as long as the budget lasts.
    fn alias(&mut self, anchor: usize, line: usize) -> Result<(), Flaw> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(flaw(line, "an alias refers to the value that it stands in"));
        };
        self.aliased += node.weight;
        if self.aliased > MAX_ALIASED {
            return Err(flaw(line, "aliases expand to too much; write the values out"));
        }
        // The alias's own line: a problem in the copy is a problem of this use.
        let copy = Node { line, ..node.clone() };
        self.place(copy, 0)
    }

    fn place(&mut self, node: Node, anchor: usize) -> Result<(), Flaw> {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(parent) = self.open.last_mut() else {
            self.roots.push(node);
            return Ok(());
        };
        if let (Some(count), Some(stream)) = (&mut parent.streamed, &mut self.stream) {
            *count += 1;
            (stream.take)(node);
            return Ok(());
        }
        parent.weight += node.weight;
        match (&mut parent.kind, parent.key.take()) {
            (Kind::List(items), _) => items.push(node),
            (Kind::Map(entries), Some((key, line))) => {
                let first = parent.seen.get(&key).copied().filter(|_| &*key != "<<");
                if let Some(first) = first {
                    self.report_twice(&key, line, first);
                } else {
                    parent.seen.insert(key.clone(), line);
                    entries.push(Entry { key, line, value: node });
                }
            }
            (Kind::Map(_), None) => match node.kind {
                Kind::Scalar { text, .. } => {
                    let known = self.keys.get(text.as_str()).cloned();
                    let key = known.unwrap_or_else(|| {
                        let key: Rc<str> = text.into();
                        self.keys.insert(key.clone());
                        key
                    });
                    parent.key = Some((key, node.line));
                }
                Kind::List(_) | Kind::Map(_) => {
                    return Err(flaw(
                        node.line,
                        "a key must be a plain word; put a template that begins with {{ in quotes",
                    ));
                }
            },
            (Kind::Scalar { .. }, _) => {}
        }
        Ok(())
    }

    /// A key that its mapping has already. The first one stays.
    fn report_twice(&mut self, key: &str, line: usize, first: usize) {
        let mut path = String::new();
        for open in self.open.iter().rev().skip(1).rev() {
            match (&open.kind, &open.key) {
                (Kind::List(items), _) => {
                    let index = open.streamed.unwrap_or(items.len());
                    path = format!("{path}[{index}]");
                }
                (_, Some((key, _))) => path = join(&path, key),
                _ => {}
            }
        }
        let what = format!("given twice (first on line {first}); remove one");
        self.flaws.push(Flaw { line, path: join(&path, key), what });
    }

    /// `<<: *defaults`: entries that the mapping does not have itself.
    fn merge(&mut self, entries: &mut Vec<Entry>) {
        if entries.iter().all(|entry| &*entry.key != "<<") {
            return;
        }
        let (merges, own): (Vec<_>, Vec<_>) =
            std::mem::take(entries).into_iter().partition(|entry| &*entry.key == "<<");
        *entries = own;
        let mut names: HashSet<Rc<str>> = entries.iter().map(|entry| entry.key.clone()).collect();
        for entry in merges {
            let sources = match entry.value.kind {
                Kind::List(items) => items,
                _ => vec![entry.value],
            };
            for source in sources {
                let Kind::Map(inherited) = source.kind else {
                    self.flaws.push(flaw(entry.line, "`<<` takes a mapping or a list of mappings"));
                    continue;
                };
                entries.extend(inherited.into_iter().filter(|item| names.insert(item.key.clone())));
            }
        }
    }
}

/// What the usual slips look like to a YAML parser, and their cure.
fn hint(written: &str, info: &str) -> &'static str {
    let value = written.split_once(": ").map_or(written, |(_, value)| value).trim_start();
    if value.starts_with(['*', '@', '%', '`', '&']) {
        return "; put the value in quotes";
    }
    if value.starts_with("{{") {
        return "; put the template in quotes";
    }
    if value.starts_with(['{', '[']) && value.contains("${") {
        return "; inside { } and [ ], put \"${NAME}\" in quotes";
    }
    if info.contains("tab") {
        return "; indent with spaces";
    }
    if written.trim_start().split_once(": ").is_some() {
        return "; look at the indentation and at quotes that are not closed";
    }
    ""
}

fn flaw(line: usize, what: impl Into<String>) -> Flaw {
    Flaw { line, path: String::new(), what: what.into() }
}

/// `parent.key`, with keys quoted that would read as more than one step.
pub(super) fn join(parent: &str, key: &str) -> String {
    let clean =
        !key.is_empty() && !key.contains(['.', '[', ']', '"']) && !key.contains(char::is_control);
    match (parent.is_empty(), clean) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{parent}.{key}"),
        (_, false) => format!("{parent}[{key:?}]"),
    }
}
