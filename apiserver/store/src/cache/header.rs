//! What the cache knows of an object without parsing it again: uid, labels, and the fields that selectors may name.
//! Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::Key;

/// Extracted from an object once, when it enters the cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// `metadata.uid`; empty when it has none.
    pub uid: Box<str>,
    /// `metadata.labels`.
    pub labels: Pairs,
    /// The selectable fields that are present, by the path a field selector names.
    pub fields: Pairs,
}

/// Reads a header out of an encoded object. Each resource brings its own.
pub trait Describe: Send + Sync + 'static {
    /// The header of `value`, the encoded object at `key`.
    ///
    /// # Errors
    /// A sentence on why the value cannot be read.
    fn describe(&self, key: &Key, value: &[u8]) -> Result<Header, String>;

    /// The value as it would be written today, if it was written in an older form; `None`: it is in today's.
    ///
    /// # Errors
    /// A sentence on why the form is not known any more.
    fn renew(&self, _value: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }
}

impl<F: Fn(&Key, &[u8]) -> Result<Header, String> + Send + Sync + 'static> Describe for F {
    fn describe(&self, key: &Key, value: &[u8]) -> Result<Header, String> {
        self(key, value)
    }
}

/// A sorted map from text to text in two allocations, because the cache holds one or two per object.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Pairs {
    text: Box<str>,
    /// Where each key and each value ends in `text`, alternating.
    ends: Box<[u32]>,
}

impl Pairs {
    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// All pairs in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut start = 0;
        let mut next = move |end: u32| {
            let end = end as usize;
            let part = self.text.get(start..end).unwrap_or_default();
            start = end;
            part
        };
        self.ends.as_chunks().0.iter().map(move |[key, value]| (next(*key), next(*value)))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl<K: AsRef<str> + Ord, V: AsRef<str>> FromIterator<(K, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Pairs {
        let sorted: BTreeMap<K, V> = pairs.into_iter().collect();
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(sorted.len() * 2));
        for (key, value) in &sorted {
            for part in [key.as_ref(), value.as_ref()] {
                text.push_str(part);
                // Values are at most VALUE_LIMIT bytes in all, far below 4 GiB.
                ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
            }
        }
        Pairs { text: text.into(), ends: ends.into() }
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Describes any object by paths: `metadata.uid`, `metadata.labels`, and the field paths it was made with, such as
/// `status.phase`. Everything else is skipped without being decoded.
#[derive(Debug, Clone)]
pub struct Paths {
    root: Node,
}

/// What is wanted below a place in the object.
#[derive(Debug, Clone)]
enum Node {
    Inner(BTreeMap<String, Node>),
    Uid,
    Labels,
    /// A scalar, with the path it is selected by.
    Field(String),
}

impl Paths {
    /// Extracts uid, labels and the scalars at these dotted paths.
    #[must_use]
    pub fn new<'a>(fields: impl IntoIterator<Item = &'a str>) -> Paths {
        let mut root = Node::Inner(BTreeMap::new());
        root.add("metadata.uid", Node::Uid);
        root.add("metadata.labels", Node::Labels);
        for path in fields {
            root.add(path, Node::Field(path.to_owned()));
        }
        Paths { root }
    }
}

impl Node {
    fn add(&mut self, path: &str, leaf: Node) {
        let Node::Inner(children) = self else { return };
        match path.split_once('.') {
            None => {
                children.entry(path.to_owned()).or_insert(leaf);
            }
            Some((first, rest)) => {
                children.entry(first.to_owned()).or_insert_with(|| Node::Inner(BTreeMap::new())).add(rest, leaf);
            }
        }
    }
}

impl Describe for Paths {
    fn describe(&self, _key: &Key, value: &[u8]) -> Result<Header, String> {
        let mut found = Found::default();
        let mut json = serde_json::Deserializer::from_slice(value);
        let read = Extract { node: &self.root, found: &mut found }.deserialize(&mut json).and_then(|()| json.end());
        read.map_err(|error| error.to_string())?;
        Ok(Header {
            uid: found.uid.into(),
            labels: found.labels.into_iter().collect(),
            fields: found.fields.into_iter().collect(),
        })
    }
}

#[derive(Default)]
struct Found {
    uid: String,
    labels: Vec<(String, String)>,
    fields: Vec<(String, String)>,
}

struct Extract<'a> {
    node: &'a Node,
    found: &'a mut Found,
}

impl Extract<'_> {
    fn scalar<E>(self, text: impl FnOnce() -> String) -> Result<(), E> {
        match self.node {
            Node::Uid => self.found.uid = text(),
            Node::Field(path) => self.found.fields.push((path.clone(), text())),
            Node::Inner(_) | Node::Labels => {}
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Extract<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Extract<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.node {
                Node::Labels => self.found.labels.push((name.into_owned(), map.next_value()?)),
                Node::Inner(children) => match children.get(name.as_ref()) {
                    Some(node) => map.next_value_seed(Extract { node, found: &mut *self.found })?,
                    None => drop(map.next_value::<IgnoredAny>()?),
                },
                Node::Uid | Node::Field(_) => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.scalar(|| text.to_owned())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.scalar(|| value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.scalar(|| value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.scalar(|| value.to_string())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.scalar(|| value.to_string())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn describe(fields: &[&str], text: &str) -> Result<Header, String> {
        let key = Key::new("pods", Some("a"), "b").unwrap();
        Paths::new(fields.iter().copied()).describe(&key, text.as_bytes())
    }

    #[test]
    fn a_header_holds_uid_labels_and_the_fields_asked_for() {
        let text = r#"{"kind":"Pod","metadata":{"uid":"u-1","labels":{"b":"2","a":"\"1"},"name":"x"},
            "spec":{"nodeName":"n","replicas":3,"on":true,"containers":[{"uid":1}]},"status":{"phase":null}}"#;
        let fields = ["spec.nodeName", "spec.replicas", "spec.on", "status.phase", "spec.containers", "metadata.name"];
        let expected = Header {
            uid: "u-1".into(),
            labels: [("a", "\"1"), ("b", "2")].into_iter().collect(),
            fields: [("metadata.name", "x"), ("spec.nodeName", "n"), ("spec.on", "true"), ("spec.replicas", "3")]
                .into_iter()
                .collect(),
        };
        assert_eq!(describe(&fields, text), Ok(expected));
    }

    #[test]
    fn absent_parts_are_empty_and_odd_ones_do_no_harm() {
        assert_eq!(describe(&[], r#"{"metadata":{"labels":null,"uid":{}}}"#), Ok(Header::default()));
        assert!(describe(&[], r#"{"metadata":{"labels":{"a":1}}}"#).is_err());
        assert!(describe(&[], r#"{"metadata":{}} x"#).is_err());
        assert!(describe(&[], "{").is_err());
    }

    #[test]
    fn pairs_give_back_what_was_put_in() {
        let pairs: Pairs = [("k", "v"), ("", "e"), ("a", "")].into_iter().collect();
        assert_eq!(pairs.iter().collect::<Vec<_>>(), [("", "e"), ("a", ""), ("k", "v")]);
        assert_eq!((pairs.get("a"), pairs.get("x")), (Some(""), None));
    }
}
