//! Reading JSON that comes from outside: bounded in size, depth and number of values, with duplicate keys named.

use std::{cell::RefCell, collections::BTreeSet, fmt};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::path::Path;

/// Most duplicate keys that are named.
const DUPLICATES_MAX: usize = 100;

/// Bounds of what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes.
    pub bytes: usize,
    /// Deepest nesting.
    pub depth: usize,
    /// Most values, scalars included: each takes 32 bytes and more, however short its text.
    pub values: usize,
}

impl Default for Limits {
    /// A request's body: 3 MiB as in Kubernetes, deeper than any kind, and at most about 10 MB of values.
    fn default() -> Self {
        Self { bytes: 3 << 20, depth: 100, values: 300_000 }
    }
}

/// Why a body is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It has too many bytes.
    #[error("the body has {found} bytes, more than the limit of {most}")]
    TooLarge {
        /// How many it has.
        found: usize,
        /// How many it may have.
        most: usize,
    },
    /// It is nested too deeply.
    #[error("the body is nested deeper than the limit of {0}")]
    TooDeep(usize),
    /// It holds too many values.
    #[error("the body holds more than the limit of {0} values")]
    TooManyValues(usize),
    /// It is not JSON.
    #[error("the body is not valid JSON: {0}")]
    Malformed(String),
}

/// A body that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The value; of duplicate keys the last wins.
    pub value: Value,
    /// Paths of keys that occur twice, in the order of the body, for `duplicate field "spec.y"`.
    pub duplicates: Vec<String>,
}

/// Reads one JSON value.
///
/// # Errors
/// What is wrong with the body.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<Decoded, Error> {
    if bytes.len() > limits.bytes {
        return Err(Error::TooLarge { found: bytes.len(), most: limits.bytes });
    }
    let notes = RefCell::new(Notes { values_left: limits.values, ..Notes::default() });
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let seed = Seed { notes: &notes, path: Path::ROOT, depth_left: limits.depth };
    let read = seed.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    let notes = notes.into_inner();
    match read {
        Ok(value) => Ok(Decoded { value, duplicates: notes.duplicates }),
        Err(_) if notes.exceeded == Some(Exceeded::Depth) => Err(Error::TooDeep(limits.depth)),
        Err(_) if notes.exceeded == Some(Exceeded::Values) => Err(Error::TooManyValues(limits.values)),
        Err(error) => Err(Error::Malformed(error.to_string())),
    }
}

/// Paths of the keys that occur twice in the same object.
///
/// # Errors
/// What is wrong with the body.
pub fn duplicates(bytes: &[u8], limits: Limits) -> Result<Vec<String>, Error> {
    decode(bytes, limits).map(|decoded| decoded.duplicates)
}

/// What is noticed while reading.
#[derive(Default)]
struct Notes {
    duplicates: Vec<String>,
    values_left: usize,
    exceeded: Option<Exceeded>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Exceeded {
    Depth,
    Values,
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    notes: &'a RefCell<Notes>,
    path: Path<'a>,
    depth_left: usize,
}

impl<'a> Seed<'a> {
    fn inner<'b>(&'b self, path: Path<'b>) -> Seed<'b>
    where
        'a: 'b,
    {
        Seed { notes: self.notes, path, depth_left: self.depth_left - 1 }
    }

    fn exceed<E: de::Error>(&self, what: Exceeded) -> E {
        self.notes.borrow_mut().exceeded = Some(what);
        E::custom("limit exceeded")
    }

    fn enter<E: de::Error>(&self) -> Result<(), E> {
        if self.depth_left == 0 { Err(self.exceed(Exceeded::Depth)) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        let left = self.notes.borrow().values_left;
        if left == 0 {
            return Err(self.exceed(Exceeded::Values));
        }
        self.notes.borrow_mut().values_left = left - 1;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }
    fn visit_bool<E>(self, found: bool) -> Result<Value, E> {
        Ok(Value::Bool(found))
    }
    fn visit_i64<E>(self, found: i64) -> Result<Value, E> {
        Ok(Value::Number(found.into()))
    }
    fn visit_u64<E>(self, found: u64) -> Result<Value, E> {
        Ok(Value::Number(found.into()))
    }
    fn visit_f64<E: de::Error>(self, found: f64) -> Result<Value, E> {
        Number::from_f64(found).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }
    fn visit_str<E>(self, found: &str) -> Result<Value, E> {
        Ok(Value::String(found.to_owned()))
    }
    fn visit_string<E>(self, found: String) -> Result<Value, E> {
        Ok(Value::String(found))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.inner(self.path.index(list.len())))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut fields = Map::new();
        let mut reported = BTreeSet::new();
        while let Some(name) = entries.next_key::<String>()? {
            let place = self.path.field(&name);
            if fields.contains_key(&name) && reported.insert(name.clone()) {
                let mut notes = self.notes.borrow_mut();
                if notes.duplicates.len() < DUPLICATES_MAX {
                    notes.duplicates.push(place.text());
                }
            }
            let value = entries.next_value_seed(self.inner(place))?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}
