//! One frame, read as lapin will read it, but without recursion into what somebody has sent.

use std::str;

/// Header that a message without its own properties has instead of them.
const MARK: &str = "belfry-unreadable";
/// Deepest nesting of tables and arrays in headers. Ours are flat; lapin's stack ends in the
/// thousands.
const MAX_DEPTH: u32 = 32;
/// Most values in a message's headers, nested ones included: a frame has room for a hundred
/// thousand, each of which costs some fifty bytes in memory.
const MAX_VALUES: u32 = 1000;

/// Class and method of what brings a message: `basic.return`, `basic.deliver` and `basic.get-ok`.
const BASIC: u16 = 60;
const RETURN: u16 = 50;
const DELIVER: u16 = 60;
const GET_OK: u16 = 71;

/// Class, weight and body size, before the flags that say which properties follow.
const HEADER_START: usize = 12;
/// The flag of the headers alone.
const HEADERS_ONLY: u16 = 1 << 13;

enum Property {
    Text,
    Table,
    Bytes(usize),
}

/// `content_type` to `cluster_id`, in the order of their flags.
const PROPERTIES: [Property; 14] = [
    Property::Text,
    Property::Text,
    Property::Table,
    Property::Bytes(1),
    Property::Bytes(1),
    Property::Text,
    Property::Text,
    Property::Text,
    Property::Text,
    Property::Bytes(8),
    Property::Text,
    Property::Text,
    Property::Text,
    Property::Text,
];

/// Which of AMQP's frames need a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Method,
    Header,
}

/// What is wrong with a message's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::broker) enum Fault {
    /// A text is no UTF-8.
    Text,
    /// Over [`MAX_DEPTH`].
    Deep,
    /// Over [`MAX_VALUES`].
    Many,
    /// Not what AMQP prescribes.
    Damaged,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Text, Self::Deep, Self::Many, Self::Damaged];

    /// For a person.
    pub(in crate::broker) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "one of its properties is no UTF-8",
            Self::Deep => "its headers are nested more than 32 deep",
            Self::Many => "it has more than 1000 headers",
            Self::Damaged => "its properties are not what AMQP prescribes",
        }
    }

    /// What was found in a message that has lost its properties; `header` reads a header's text. One
    /// that a sender wrote itself can say nothing else either.
    pub(in crate::broker) fn of<'a>(
        header: impl FnOnce(&'static str) -> Option<&'a str>,
    ) -> Option<Self> {
        let text = header(MARK)?;
        Self::ALL.into_iter().find(|fault| fault.as_str() == text)
    }
}

/// Looks at a frame's payload, mends texts where they stand, and gives another payload where it
/// cannot stay.
pub(super) fn judge(kind: Kind, payload: &mut [u8]) -> Option<Vec<u8>> {
    match kind {
        Kind::Method => {
            // Damaged ones are the broker's own; lapin ends the connection, as it should.
            let _ = mend_names(payload);
            None
        }
        Kind::Header => check_header(payload).err().map(|fault| without_properties(payload, fault)),
    }
}

/// Exchange and routing key become text, in the same length: `?` for each byte that is none.
fn mend_names(payload: &mut [u8]) -> Result<(), Fault> {
    let mut bytes = Bytes(payload);
    if bytes.u16()? != BASIC {
        return Ok(());
    }
    match bytes.u16()? {
        RETURN => drop((bytes.u16()?, bytes.short()?)),
        // Consumer tag, delivery tag, redelivered.
        DELIVER => drop((bytes.short()?, bytes.take(9)?)),
        GET_OK => drop(bytes.take(9)?),
        _ => return Ok(()),
    }
    let mut at = payload.len() - bytes.0.len();
    for _ in ["exchange", "routing key"] {
        let length = usize::from(*payload.get(at).ok_or(Fault::Damaged)?);
        let name = payload.get_mut(at + 1..at + 1 + length).ok_or(Fault::Damaged)?;
        if str::from_utf8(name).is_err() {
            name.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
        }
        at += 1 + length;
    }
    Ok(())
}

fn check_header(payload: &[u8]) -> Result<(), Fault> {
    let mut bytes = Bytes(payload);
    bytes.take(HEADER_START)?;
    let flags = bytes.u16()?;
    for (n, property) in PROPERTIES.iter().enumerate() {
        if flags & (1 << (15 - n)) == 0 {
            continue;
        }
        match property {
            Property::Text => bytes.text()?,
            Property::Table => {
                let mut values = 0;
                bytes.inner()?.table(1, &mut values)?;
            }
            Property::Bytes(count) => drop(bytes.take(*count)?),
        }
    }
    if bytes.0.is_empty() { Ok(()) } else { Err(Fault::Damaged) }
}

/// The same header with nothing but the mark.
fn without_properties(payload: &[u8], fault: Fault) -> Vec<u8> {
    let mut start = [0; HEADER_START];
    let there = payload.len().min(HEADER_START);
    start[..there].copy_from_slice(&payload[..there]);
    let mut table = vec![length_of::<u8>(MARK)];
    table.extend_from_slice(MARK.as_bytes());
    table.push(b'S');
    table.extend_from_slice(&length_of::<u32>(fault.as_str()).to_be_bytes());
    table.extend_from_slice(fault.as_str().as_bytes());
    let mut header = start.to_vec();
    header.extend_from_slice(&HEADERS_ONLY.to_be_bytes());
    header.extend_from_slice(&u32::try_from(table.len()).expect("a few bytes").to_be_bytes());
    header.extend_from_slice(&table);
    header
}

fn length_of<T: TryFrom<usize>>(text: &str) -> T
where
    T::Error: std::fmt::Debug,
{
    T::try_from(text.len()).expect("our own short text")
}

/// What is left to read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, left) = self.0.split_at_checked(count).ok_or(Fault::Damaged)?;
        self.0 = left;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, Fault> {
        Ok(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    /// What a length of four bytes announces.
    fn inner(&mut self) -> Result<Self, Fault> {
        let length = [self.u8()?, self.u8()?, self.u8()?, self.u8()?];
        Ok(Self(self.take(u32::from_be_bytes(length) as usize)?))
    }

    fn short(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.u8()?;
        self.take(length.into())
    }

    fn text(&mut self) -> Result<(), Fault> {
        str::from_utf8(self.short()?).map(drop).map_err(|_| Fault::Text)
    }

    fn table(mut self, depth: u32, values: &mut u32) -> Result<(), Fault> {
        while !self.0.is_empty() {
            self.text()?;
            self.value(depth, values)?;
        }
        Ok(())
    }

    fn array(mut self, depth: u32, values: &mut u32) -> Result<(), Fault> {
        while !self.0.is_empty() {
            self.value(depth, values)?;
        }
        Ok(())
    }

    /// A value with the letter of its type, as RabbitMQ writes them.
    fn value(&mut self, depth: u32, values: &mut u32) -> Result<(), Fault> {
        *values += 1;
        if *values > MAX_VALUES {
            return Err(Fault::Many);
        }
        let length = match self.u8()? {
            b'F' | b'A' if depth == MAX_DEPTH => return Err(Fault::Deep),
            b'F' => return self.inner()?.table(depth + 1, values),
            b'A' => return self.inner()?.array(depth + 1, values),
            // Long strings are bytes, whatever their name.
            b'S' | b'x' => return self.inner().map(drop),
            b'V' => 0,
            b't' | b'b' | b'B' => 1,
            b's' | b'U' | b'u' => 2,
            b'I' | b'i' | b'f' => 4,
            b'D' => 5,
            b'L' | b'l' | b'd' | b'T' => 8,
            _ => return Err(Fault::Damaged),
        };
        self.take(length).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use lapin::types::parsing::parse_field_table;
    use proptest::prelude::*;

    use super::*;

    fn header(flags: u16, properties: &[u8]) -> Vec<u8> {
        [&[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9][..], &flags.to_be_bytes(), properties].concat()
    }

    fn long(bytes: &[u8]) -> Vec<u8> {
        [&u32::try_from(bytes.len()).expect("short").to_be_bytes(), bytes].concat()
    }

    #[track_caller]
    fn check(headers: &[u8], expected: Option<Fault>) {
        let mut payload = header(HEADERS_ONLY, &long(headers));
        let other = judge(Kind::Header, &mut payload);
        assert_eq!(check_header(&payload).err(), expected);
        assert_eq!(other.is_some(), expected.is_some());
        // What is put in its place must pass itself, with the body's size.
        if let Some(other) = other {
            assert_eq!(check_header(&other), Ok(()));
            assert_eq!(other[..HEADER_START], payload[..HEADER_START]);
        }
    }

    fn nested(kind: u8, depth: usize) -> Vec<u8> {
        let name: &[u8] = if kind == b'F' { b"\x01a" } else { b"" };
        let mut value = [name, b"V"].concat();
        for _ in 1..depth {
            value = [name, &[kind], &long(&value)].concat();
        }
        if kind == b'F' { value } else { [b"\x01a", &value[..]].concat() }
    }

    #[test]
    fn headers_that_lapin_would_not_survive_are_taken_off() {
        check(b"", None);
        check(b"\x01aV\x01bt\x01\x01cD\x02\0\0\0\x01", None);
        check(&[b"\x01aS", &long(b"\xff\0")[..]].concat(), None);
        check(b"\x02\xff\xfeV", Some(Fault::Text));
        check(b"\x01aZ", Some(Fault::Damaged));
        check(b"\x01aI\0", Some(Fault::Damaged));
        check(b"\x01aF\xff\xff\xff\xff", Some(Fault::Damaged));
        check(&nested(b'F', 32), None);
        check(&nested(b'F', 33), Some(Fault::Deep));
        check(&nested(b'F', 18_000), Some(Fault::Deep));
        check(&nested(b'A', 25_000), Some(Fault::Deep));
        check(&b"\x01aV".repeat(1000), None);
        check(&b"\x01aV".repeat(1001), Some(Fault::Many));
        check(&[b"\x01aA", &long(&vec![b'V'; 100_000])[..]].concat(), Some(Fault::Many));
    }

    #[test]
    fn every_property_is_read_in_its_place() {
        let texts = b"\x01a\x01b";
        let rest = b"\x02\x05\x01c\x01d\x01e\x01f\0\0\0\0\0\0\0\x01\x01g\x01h\x01i\x01j";
        let all = [&texts[..], &long(b""), rest].concat();
        assert_eq!(check_header(&header(0xfffc, &all)), Ok(()));
        assert_eq!(check_header(&header(0xfffc, &[&all[..], b"x"].concat())), Err(Fault::Damaged));
        assert_eq!(check_header(&header(1 << 7, b"\x02\xff\xfe")), Err(Fault::Text));
        assert_eq!(check_header(&header(1 << 7, b"\x02a")), Err(Fault::Damaged));
        assert_eq!(check_header(b"\0\x3c"), Err(Fault::Damaged));
    }

    #[test]
    fn a_routing_key_stays_as_long_as_it_was() {
        let deliver =
            |key: &[u8]| [b"\0\x3c\0\x3c\x03tag\0\0\0\0\0\0\0\x07\0\x02ex\x03", key].concat();
        let mut payload = deliver(b"a\xffb");
        assert_eq!(judge(Kind::Method, &mut payload), None);
        assert_eq!(payload, deliver(b"a?b"));
        let mut fine = deliver("é!".as_bytes());
        judge(Kind::Method, &mut fine);
        assert_eq!(fine, deliver("é!".as_bytes()));
        let mut got = [b"\0\x3c\0\x47\0\0\0\0\0\0\0\x07\0\0\x01\xfe", &[0; 4][..]].concat();
        judge(Kind::Method, &mut got);
        assert_eq!(got[14], b'?');
    }

    #[test]
    fn the_mark_says_only_what_we_say() {
        let said = |text| Fault::of(move |name| (name == MARK).then_some(text));
        assert_eq!(said(Fault::Deep.as_str()), Some(Fault::Deep));
        assert_eq!(said("a megabyte of something else"), None);
        assert_eq!(Fault::of(|_| None), None);
        assert!(Fault::Deep.as_str().contains(&MAX_DEPTH.to_string()));
        assert!(Fault::Many.as_str().contains(&MAX_VALUES.to_string()));
    }

    fn table() -> impl Strategy<Value = Vec<u8>> {
        let letters = prop::sample::select(b"FASxVtbBsUuIifDLldTZ\0".to_vec());
        let value = (letters, prop::collection::vec(any::<u8>(), 0..12));
        let entry =
            (prop::collection::vec(any::<u8>(), 0..3), value).prop_map(|(name, (letter, rest))| {
                let length = u8::try_from(name.len()).expect("short");
                [&[length][..], &name, &[letter], &rest].concat()
            });
        prop::collection::vec(entry, 0..4).prop_map(|entries| entries.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// The guard's reading and lapin's are one: what passes here is parsed there.
        #[test]
        fn what_passes_is_what_lapin_can_read(table in table()) {
            let mut values = 0;
            let passes = Bytes(&table).table(1, &mut values).is_ok();
            let whole = long(&table);
            let parsed = parse_field_table(&whole[..]).is_ok_and(|(left, _)| left.is_empty());
            prop_assert_eq!(passes, parsed);
        }
    }
}
