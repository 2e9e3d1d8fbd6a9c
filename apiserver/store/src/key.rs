//! Keys, and ranges of keys. A key is checked when it is made, so that no name can reach outside its place in the
//! key space; after that it is one comparable piece of text.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Longest resource, namespace or name: what a DNS subdomain may have.
const SEGMENT_LIMIT: usize = 253;

/// Parts a segment from the next. No segment may contain it, and it sorts before everything a segment may contain, so
/// that the order of the text is the order of (resource, namespace, name).
const SEPARATOR: char = '\0';

/// The smallest text after all texts that begin with a separator.
const AFTER_SEPARATOR: char = '\u{1}';

/// The place of one object: resource (`group/plural`, or just `plural` for the core group), namespace if it has one,
/// and name.
#[derive(Clone)]
pub struct Key {
    /// `resource \0 namespace \0 name`, the namespace empty for what has none.
    text: Arc<str>,
    resource_end: u16,
    namespace_end: u16,
}

/// Why a key was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The resource is not `group/plural` or `plural`.
    #[error("making a key: resource {0:?} is not a lower-case plural, optionally after a group and a slash")]
    Resource(String),
    /// The namespace cannot be a segment.
    #[error("making a key: namespace {0:?} is not one to 253 characters free of '/', '%' and control characters")]
    Namespace(String),
    /// The name cannot be a segment.
    #[error("making a key: name {0:?} is not one to 253 characters free of '/', '%' and control characters")]
    Name(String),
}

impl Key {
    /// A checked key.
    ///
    /// # Errors
    /// Any part that is empty, too long, or could be read as a path.
    pub fn new(resource: &str, namespace: Option<&str>, name: &str) -> Result<Key, KeyError> {
        if !is_resource(resource) {
            return Err(KeyError::Resource(resource.to_owned()));
        }
        if let Some(namespace) = namespace.filter(|n| !is_segment(n)) {
            return Err(KeyError::Namespace(namespace.to_owned()));
        }
        if !is_segment(name) {
            return Err(KeyError::Name(name.to_owned()));
        }
        let namespace = namespace.unwrap_or_default();
        let ends = (u16::try_from(resource.len()), u16::try_from(resource.len() + 1 + namespace.len()));
        let (Ok(resource_end), Ok(namespace_end)) = ends else {
            return Err(KeyError::Resource(resource.to_owned()));
        };
        let text = format!("{resource}{SEPARATOR}{namespace}{SEPARATOR}{name}").into();
        Ok(Key { text, resource_end, namespace_end })
    }

    /// Reads a key back from [`Key::text`]. None when the text was not made by this type.
    pub(crate) fn from_text(text: &str) -> Option<Key> {
        let mut parts = text.splitn(3, SEPARATOR);
        let (resource, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        Key::new(resource, Some(namespace).filter(|n| !n.is_empty()), name).ok()
    }

    /// The key as stored: unique, and ordered as keys are.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The resource, such as `redis.kun.io/redisclusters`.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.text.get(..usize::from(self.resource_end)).unwrap_or_default()
    }

    /// The namespace; none for what is cluster-scoped.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        let range = usize::from(self.resource_end) + 1..usize::from(self.namespace_end);
        self.text.get(range).filter(|n| !n.is_empty())
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text.get(usize::from(self.namespace_end) + 1..).unwrap_or_default()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.text == other.text
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.resource(), self.name()),
            None => write!(f, "{}/{}", self.resource(), self.name()),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// A set of keys that lie together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// Every key.
    All,
    /// Every key of a resource.
    Resource(String),
    /// Every key of a resource in one namespace.
    Namespace {
        /// The resource.
        resource: String,
        /// The namespace.
        namespace: String,
    },
}

impl Range {
    /// Every key of `resource`, or of its part in `namespace`.
    #[must_use]
    pub fn of(resource: &str, namespace: Option<&str>) -> Range {
        let resource = resource.to_owned();
        match namespace {
            None => Range::Resource(resource),
            Some(namespace) => Range::Namespace { resource, namespace: namespace.to_owned() },
        }
    }

    /// Whether `key` is in the range.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        match self {
            Range::All => true,
            Range::Resource(resource) => key.resource() == resource,
            Range::Namespace { resource, namespace } => {
                key.resource() == resource && key.namespace() == Some(namespace.as_str())
            }
        }
    }

    /// The texts of the range's keys are at or after the first and before the second.
    pub(crate) fn bounds(&self) -> (String, String) {
        match self {
            Range::All => (String::new(), char::MAX.to_string()),
            Range::Resource(r) => (format!("{r}{SEPARATOR}"), format!("{r}{AFTER_SEPARATOR}")),
            Range::Namespace { resource: r, namespace: n } => {
                (format!("{r}{SEPARATOR}{n}{SEPARATOR}"), format!("{r}{SEPARATOR}{n}{AFTER_SEPARATOR}"))
            }
        }
    }
}

/// One path segment: it can neither contain a separator nor be a way to another directory, in any encoding.
fn is_segment(text: &str) -> bool {
    let forbidden = |c: char| c == '/' || c == '%' || c == '\\' || c.is_control();
    !text.is_empty() && text.len() <= SEGMENT_LIMIT && text != "." && text != ".." && !text.contains(forbidden)
}

/// `plural` or `group/plural`, in the characters DNS names are made of.
fn is_resource(text: &str) -> bool {
    let is_part = |part: &str| {
        is_segment(part) && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
    };
    match text.split_once('/') {
        Some((group, plural)) => is_part(group) && is_part(plural),
        None => is_part(text),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_gives_back_its_parts() {
        let key = Key::new("redis.kun.io/redisclusters", Some("shop"), "orders").unwrap();
        assert_eq!(
            (key.resource(), key.namespace(), key.name()),
            ("redis.kun.io/redisclusters", Some("shop"), "orders")
        );
        assert_eq!(key.to_string(), "redis.kun.io/redisclusters/shop/orders");
        let key = Key::new("namespaces", None, "shop").unwrap();
        assert_eq!((key.resource(), key.namespace(), key.name()), ("namespaces", None, "shop"));
    }

    #[test]
    fn a_name_cannot_reach_outside_its_place() {
        for name in ["", ".", "..", "a/b", "../b", "a%2fb", "a\0b", "a\nb", "a\\b", &"x".repeat(254)] {
            assert_eq!(Key::new("pods", Some("a"), name), Err(KeyError::Name(name.to_owned())));
            assert_eq!(Key::new("pods", Some(name), "a"), Err(KeyError::Namespace(name.to_owned())));
        }
        for resource in ["", "/", "a/", "/a", "a/b/c", "../a", "Pods", "a b"] {
            assert_eq!(Key::new(resource, None, "a"), Err(KeyError::Resource(resource.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn order_and_range_follow_the_parts(
            a in ("[a-b]{1,2}", "[a-b.-]{1,2}x", "[a-b.-]{1,2}x"),
            b in ("[a-b]{1,2}", "[a-b.-]{1,2}x", "[a-b.-]{1,2}x"),
        ) {
            let (ka, kb) = (Key::new(&a.0, Some(&a.1), &a.2).unwrap(), Key::new(&b.0, Some(&b.1), &b.2).unwrap());
            prop_assert_eq!(ka.cmp(&kb), a.cmp(&b));
            prop_assert_eq!(Key::from_text(ka.text()), Some(ka.clone()));
            for range in [Range::All, Range::of(&b.0, None), Range::of(&b.0, Some(&b.1))] {
                let (from, to) = range.bounds();
                prop_assert_eq!(range.contains(&ka), ka.text() >= from.as_str() && ka.text() < to.as_str());
            }
        }
    }
}
