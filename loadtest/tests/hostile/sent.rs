//! What is sent, and where each of it must end.

use uuid::Uuid;

use crate::raw::{Sent, entry, long, short};

pub const MEGABYTE: usize = 1024 * 1024;
/// Bodies of ten megabytes to each queue.
const BIG: usize = 10;

/// Where a message ends.
#[derive(Clone, Copy)]
pub enum End {
    /// A row in `dead_letters` and a copy in the dead queue, both with this reason.
    Letter(&'static str),
    /// A copy in the dead queue: the task does not exist.
    Orphan,
    /// A task.
    Task,
}

pub struct Case {
    pub sent: Sent,
    pub end: End,
}

fn case(sent: Sent, end: End) -> Case {
    Case { sent, end }
}

fn letter(body: impl Into<Vec<u8>>, reason: &'static str) -> Case {
    case(Sent::body(body), End::Letter(reason))
}

/// Points to a task that nobody knows.
fn unknown() -> Sent {
    Sent::body(pointer(Uuid::now_v7()))
}

pub fn pointer(task: impl std::fmt::Display) -> String {
    format!(r#"{{"task_id":"{task}"}}"#)
}

fn big(name: &str) -> Vec<u8> {
    let mut body = format!("{name} ").into_bytes();
    body.resize(10 * MEGABYTE, 0xff);
    body
}

/// To the queue of a pool, where pointers to tasks are expected.
pub fn to_the_pool() -> Vec<Case> {
    const READ: &str = "the body is not a task message: ";
    let mut cases: Vec<Case> = (0..BIG)
        .map(|n| letter(big(&format!("pool {n}")), "the body has 10485760 bytes"))
        .collect();
    let many = vec![format!("\"{}\"", Uuid::now_v7()); 501].join(",");
    let id = Uuid::now_v7();
    cases.extend([
        letter("", READ),
        letter("\0\0\0", READ),
        letter(b"\xff\xfe no text".to_vec(), READ),
        letter("[".repeat(60_000), READ),
        letter("[".repeat(100_000), "the body has 100000 bytes"),
        letter(r#"{"task_id":1e999999}"#, READ),
        letter(format!(r#"{{"task_id":{}}}"#, "9".repeat(50_000)), READ),
        letter(format!(r#"{{"task_id":"{id}","task_id":"{id}"}}"#), READ),
        letter(r#"{"task_id":5}"#, READ),
        letter(r#"{"task_id":"\u0000"}"#, READ),
        letter(r#"{"task_id":null}"#, "the body names no \"task_id\""),
        letter(r#"{"task_ids":"all"}"#, READ),
        letter(format!(r#"{{"type":7,"task_id":"{id}"}}"#), READ),
        letter(format!(r#"{{"task_id":"{}"}}"#, "x".repeat(60_000)), READ),
        letter(format!(r#"{{"task_ids":[{}]}}"#, &many), "the bundle names 501 tasks"),
        case(unknown(), End::Orphan),
    ]);
    cases.extend(unreadable(unknown));
    cases.extend(odd(unknown).into_iter().map(|sent| case(sent, End::Orphan)));
    cases
}

/// To the inbox, where requests are expected.
pub fn to_the_inbox() -> Vec<Case> {
    let mut cases: Vec<Case> =
        (0..BIG).map(|n| letter(big(&format!("inbox {n}")), "the request has 10485760")).collect();
    let deep =
        format!(r#"{{"type":"probe","payload":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let with = |field: &str| format!(r#"{{"type":"probe",{field}}}"#);
    cases.extend([
        letter("", "invalid request: one JSON object is wanted"),
        letter("\0", "invalid request: one JSON object is wanted"),
        letter(b"\xff\xfe no text either".to_vec(), "invalid request: one JSON object is wanted"),
        letter(deep, "invalid request: payload: recursion limit exceeded"),
        letter(
            with(r#""payload":{"echo":1e999999}"#),
            "invalid request: payload: number out of range",
        ),
        letter(
            with(&format!(r#""payload":{{"echo":{}}}"#, "9".repeat(100_000))),
            "invalid request: ",
        ),
        letter(with(r#""type":"probe""#), "invalid request: duplicate field `type`"),
        letter(with(r#""payload":"\ud800""#), "invalid request: "),
        letter(
            with(r#""payload":{"echo":"\u0000"}"#),
            "invalid request: the payload contains a NUL",
        ),
        letter(r#"{"type":5}"#, "invalid request: type: invalid type: integer `5`"),
        letter(r#"{"type":"\u0000"}"#, "invalid request: no pool takes the task type"),
        letter(
            format!(r#"{{"type":"{}"}}"#, "t".repeat(200_000)),
            "invalid request: no pool takes",
        ),
        letter(with(&format!(r#""{}":1"#, "f".repeat(200_000))), "invalid request: unknown field"),
        letter(with(r#""key":[]"#), "invalid request: key: invalid type: sequence"),
        letter(with(r#""key":"a\u0000""#), "invalid request: an execution key must be printable"),
        letter(
            with(&format!(r#""key":"{}""#, "k".repeat(200_000))),
            "invalid request: an execution key has at most",
        ),
        letter(with(r#""name":{}"#), "invalid request: name: invalid type: map"),
        letter(with(r#""name":"a\u0000""#), "invalid request: a name must be printable"),
        letter(with(r#""delay":{}"#), "invalid request: "),
        letter(with(r#""delay":1e300"#), "invalid request: "),
        letter(with(r#""delay":"99999999999999999999d""#), "invalid request: delay"),
        letter(with(r#""timeout":-1"#), "invalid request: timeout"),
        letter(
            with(r#""max_retry":-1"#),
            "invalid request: max_retry: invalid value: integer `-1`",
        ),
        letter(with(r#""max_retry":4294967295"#), "invalid request: at most 1000 retries"),
        letter("[]", "invalid request: one JSON object is wanted"),
        case(unknown(), End::Letter("this is the message of a task, not a request")),
        case(
            Sent::body(with(r#""payload":{"echo":"its id has a NUL"}"#)).message_id(b"a\0b"),
            End::Letter("invalid request: an execution key must be printable"),
        ),
        case(Sent::body(with(r#""payload":{"echo":1,"echo":2}"#)), End::Task),
    ]);
    let request = || Sent::body(with(&format!(r#""payload":{{"echo":"{}"}}"#, Uuid::now_v7())));
    cases.extend(unreadable(request));
    cases.extend(odd(request).into_iter().map(|sent| case(sent, End::Task)));
    cases
}

/// Properties that a broker passes on and a client library does not survive.
fn unreadable(sent: impl Fn() -> Sent) -> Vec<Case> {
    const TEXT: &str = "one of its properties is no UTF-8";
    const DEEP: &str = "its headers are nested more than 32 deep";
    const MANY: &str = "it has more than 1000 headers";
    let names: Vec<u8> =
        (0..2000).flat_map(|n| entry(&format!("{n:05}"), b'S', &long(&[b'v'; 40]))).collect();
    let voids = entry("a", b'A', &long(&vec![b'V'; 120_000]));
    [
        (sent().message_id(b"\xff\xfe"), TEXT),
        (sent().headers(&[&short(b"\xff")[..], b"V"].concat()), TEXT),
        (sent().headers(&nested(b'F', 6000)), DEEP),
        (sent().headers(&nested(b'A', 8000)), DEEP),
        (sent().headers(&names), MANY),
        (sent().headers(&voids), MANY),
    ]
    .map(|(sent, reason)| case(sent, End::Letter(reason)))
    .into()
}

/// Properties that mean nothing here, or pretend to: they must change nothing.
fn odd(sent: impl Fn() -> Sent) -> Vec<Sent> {
    let wrong: Vec<u8> = ["traceparent", "previous-attempt", "run", "dead-letter", "failures"]
        .iter()
        .zip([
            &b"I\0\0\0\x05"[..],
            b"x\0\0\0\x02\xff\xfe",
            b"V",
            b"F\0\0\0\0",
            b"d\x7f\xef\0\0\0\0\0\0",
        ])
        .flat_map(|(name, value)| entry(name, value[0], &value[1..]))
        .collect();
    let death: Vec<u8> = [
        entry("queue", b'S', &long(b"belfry.tasks.io_pool")),
        entry("reason", b'S', &long(b"expired")),
        entry("count", b'l', &i64::MAX.to_be_bytes()),
        entry("time", b'T', &[0; 8]),
        entry("exchange", b'S', &long(b"")),
        entry("routing-keys", b'A', &long(&[&b"S"[..], &long(b"io_pool.probe")].concat())),
    ]
    .concat();
    let death = [&b"F"[..], &long(&death)].concat().repeat(20);
    // All fourteen, where the broker has no say: not expiration and not user id.
    let every = [
        &short(b"\0\0")[..],
        &short("é".repeat(100).as_bytes()),
        &long(&entry("\u{1b}[2J", b'S', &long(b"\x1b[2J"))),
        // A delivery mode beside 1 and 2 is refused by the broker.
        &[2, 255],
        &short(&[b'c'; 255]),
        &short(&[b'r'; 255]),
        &[0xff; 8],
        &short(&[b't'; 255]),
        &short(b"producer"),
        &short(b"cluster"),
    ]
    .concat();
    vec![
        sent().headers(&wrong),
        sent().headers(&entry("x-death", b'A', &long(&death))),
        sent().headers(&entry("x-delivery-count", b'l', &i64::MAX.to_be_bytes())),
        sent().headers(&entry("traceparent", b'S', &long(&[b'0'; 120_000]))),
        sent().headers(&entry("dead-letter", b'l', &1_i64.to_be_bytes())),
        sent().headers(&entry("dead-letter", b'S', &long(b"9223372036854775808"))),
        sent().headers(&entry("belfry-unreadable", b'S', &long(b"so it says"))),
        sent().headers(&nested(b'F', 30)),
        sent().properties(0b1111_1110_0110_1100, &every),
    ]
}

/// A table, or an array in one, so many levels deep.
pub fn nested(letter: u8, depth: usize) -> Vec<u8> {
    let name: &[u8] = if letter == b'F' { b"\x01a" } else { b"" };
    let mut value: Vec<u8> = if letter == b'F' { Vec::new() } else { b"\x01a".to_vec() };
    for inside in (1..depth).rev() {
        let length = (name.len() + 5) * (inside - 1) + name.len() + 1;
        value.extend_from_slice(name);
        value.push(letter);
        value.extend_from_slice(&u32::try_from(length).expect("short enough").to_be_bytes());
    }
    [&value, name, b"V"].concat()
}
