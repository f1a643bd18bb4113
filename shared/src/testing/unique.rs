//! A JSON object in which no key comes twice.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Read from a line that has it; a key that comes twice is an error, which a parser usually forgives.
#[derive(Clone, Debug)]
pub struct Unique(pub Map<String, Value>);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Keys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Unique, A::Error> {
        let mut map = Map::new();
        while let Some((key, value)) = from.next_entry::<String, Value>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("{key:?} comes twice")));
            }
            map.insert(key, value);
        }
        Ok(Unique(map))
    }
}
