//! One object as the cache holds it: its watch frame, already encoded, and its header. Pure, immutable, shared.
//!
//! The bytes kept are the whole frame a watcher would be sent for the object's last write,
//! `{"type":"MODIFIED","object":{…}}\n`; the object itself is a part of it. So an object, its list item and its watch
//! event are the same bytes, held once.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;

use super::header::{Describe, Header};
use super::marks::Marks;
use super::splice::splice;
use crate::{Key, Revision};

/// What a watcher is told has happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// It is new to the watcher.
    Added,
    /// It has changed.
    Modified,
    /// It is gone, or no longer what the watcher asked for.
    Deleted,
}

impl Kind {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Added => "ADDED",
            Kind::Modified => "MODIFIED",
            Kind::Deleted => "DELETED",
        }
    }

    const fn frame_head(self) -> &'static [u8] {
        match self {
            Kind::Added => br#"{"type":"ADDED","object":"#,
            Kind::Modified => br#"{"type":"MODIFIED","object":"#,
            Kind::Deleted => br#"{"type":"DELETED","object":"#,
        }
    }
}

/// What follows the object in a frame.
const FRAME_TAIL: &[u8] = b"}\n";

/// An object at a revision.
#[derive(Debug, PartialEq, Eq)]
pub struct Object {
    key: Key,
    revision: Revision,
    header: Header,
    /// The frame of the write that made this object what it is.
    frame: Bytes,
    kind: Kind,
    /// Where in `frame` the digits of the revision begin.
    digits: u32,
    /// What is stored is in an older form than this.
    is_stale: bool,
}

impl Object {
    /// Encodes `value` as written at `revision`.
    ///
    /// # Errors
    /// A sentence on why the value cannot be read.
    pub(crate) fn encode(
        kind: Kind,
        key: Key,
        revision: Revision,
        value: &[u8],
        describe: &dyn Describe,
    ) -> Result<Object, String> {
        let renewed = describe.renew(value)?;
        let value = renewed.as_deref().unwrap_or(value);
        let header = describe.describe(&key, value)?;
        let mut frame = Vec::with_capacity(value.len() + 80);
        frame.extend_from_slice(kind.frame_head());
        let digits = splice(value, revision, &mut frame).map_err(|error| error.to_string())?;
        frame.extend_from_slice(FRAME_TAIL);
        let digits = u32::try_from(digits).map_err(|error| error.to_string())?;
        Ok(Object { key, revision, header, frame: exact(frame), kind, digits, is_stale: renewed.is_some() })
    }

    /// The same, stale also if its seal is.
    pub(crate) fn stale_if(self, is_stale: bool) -> Object {
        Object { is_stale: self.is_stale || is_stale, ..self }
    }

    /// Whether what is stored is in an older form, or sealed with an older key: the next write stores it anew even if
    /// nothing else changes.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Where it is kept.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The revision of its last write.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Uid, labels, selectable fields.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The encoded object, with its resourceVersion.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.frame.get(self.body()).unwrap_or_default()
    }

    /// The encoded object, with its resourceVersion, shared.
    #[must_use]
    pub fn json(&self) -> Bytes {
        self.frame.slice(self.body())
    }

    /// The watch frame that shows this object as `kind`. Shared when that is how it last changed, else a copy.
    #[must_use]
    pub fn frame(&self, kind: Kind) -> Bytes {
        if kind == self.kind {
            return self.frame.clone();
        }
        let mut frame = Vec::with_capacity(self.frame.len() + 3);
        frame.extend_from_slice(kind.frame_head());
        frame.extend_from_slice(self.as_bytes());
        frame.extend_from_slice(FRAME_TAIL);
        frame.into()
    }

    /// The same content, shown as `kind` at another revision: what a deletion, or leaving a selection, looks like.
    pub(crate) fn restamp(&self, kind: Kind, revision: Revision) -> Object {
        let start = self.digits as usize;
        let before = self.frame.get(self.kind.frame_head().len()..start).unwrap_or_default();
        let old = self.frame.get(start..).unwrap_or_default();
        let after = old.get(self.revision.to_string().len()..).unwrap_or_default();
        let mut frame = Vec::with_capacity(self.frame.len() + 20);
        frame.extend_from_slice(kind.frame_head());
        frame.extend_from_slice(before);
        // `before` was part of a frame whose digits had a u32 offset; heads differ by three bytes.
        let digits = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        frame.extend_from_slice(revision.to_string().as_bytes());
        frame.extend_from_slice(after);
        let header = self.header.clone();
        let is_stale = self.is_stale;
        Object { key: self.key.clone(), revision, header, frame: exact(frame), kind, digits, is_stale }
    }

    /// Bytes it keeps alive, about.
    pub(crate) fn size(&self) -> usize {
        self.frame.len() + 200
    }

    fn body(&self) -> std::ops::Range<usize> {
        self.kind.frame_head().len()..self.frame.len() - FRAME_TAIL.len()
    }
}

/// Without spare capacity, which would be kept as long as the object.
fn exact(frame: Vec<u8>) -> Bytes {
    Bytes::from(frame.into_boxed_slice())
}

/// An object in an ordered set, ordered by its key.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) object: Arc<Object>,
    /// Of its labels: here, so that a scan need not follow the pointer.
    pub(super) marks: Marks,
}

impl From<Arc<Object>> for Entry {
    fn from(object: Arc<Object>) -> Entry {
        Entry { marks: Marks::of(&object.header.labels), object }
    }
}

impl Borrow<str> for Entry {
    fn borrow(&self) -> &str {
        self.object.key.text()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.object.key == other.object.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.object.key.cmp(&other.object.key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cache::header::Paths;

    fn object(kind: Kind, revision: u64) -> Object {
        let key = Key::new("pods", Some("a"), "b").unwrap();
        let value = br#"{"kind":"Pod","metadata":{"name":"b","uid":"u"}}"#;
        Object::encode(kind, key, Revision(revision), value, &Paths::new([])).unwrap()
    }

    #[test]
    fn an_object_and_its_frame_are_the_same_bytes() {
        let object = object(Kind::Modified, 9);
        let json = r#"{"kind":"Pod","metadata":{"resourceVersion":"9","name":"b","uid":"u"}}"#;
        assert_eq!(object.json(), json);
        assert_eq!(object.frame(Kind::Modified), format!("{{\"type\":\"MODIFIED\",\"object\":{json}}}\n"));
        assert_eq!(object.frame(Kind::Added), format!("{{\"type\":\"ADDED\",\"object\":{json}}}\n"));
        let (frame, json) = (object.frame(Kind::Modified), object.json());
        assert!(frame.as_ptr_range().contains(&json.as_ptr()));
    }

    #[test]
    fn restamping_changes_kind_and_revision_only() {
        for from in [Kind::Added, Kind::Modified, Kind::Deleted] {
            for to in [Kind::Added, Kind::Modified, Kind::Deleted] {
                assert_eq!(object(from, 99).restamp(to, Revision(100)), object(to, 100));
                assert_eq!(
                    object(from, 99).restamp(Kind::Added, Revision(7)).restamp(to, Revision(12)),
                    object(to, 12)
                );
            }
        }
    }
}
