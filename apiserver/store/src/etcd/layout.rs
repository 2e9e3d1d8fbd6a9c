//! Where an object lies in etcd: Kubernetes' own layout, `PREFIX/GROUP/RESOURCE/NAMESPACE/NAME`, without the group for the
//! core group and without the namespace for what has none. Pure.
//!
//! Reading a key back needs one rule, because three parts can be `GROUP/RESOURCE/NAME` or `RESOURCE/NAMESPACE/NAME`: a first
//! part with a dot is a group. Kubernetes has no cluster-scoped kind in a group without a dot; a key that would be read
//! back as another one is refused when it is written.

use bytes::Bytes;

use crate::{Key, Range};

/// Longest prefix. The limit on values leaves room for it.
const PREFIX_LIMIT: usize = 253;

/// The folder all keys are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Begins and ends with a slash.
    folder: String,
}

impl Layout {
    /// Everything below `prefix`, such as `/registry`. None when that is no folder.
    pub(super) fn new(prefix: &str) -> Option<Layout> {
        let inner = prefix.trim_matches('/');
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(|c: char| c.is_control());
        let fits = inner.len() <= PREFIX_LIMIT && inner.split('/').all(is_part);
        fits.then(|| Layout { folder: format!("/{inner}/") })
    }

    /// Where `key` is kept. None when that place would be read back as another key.
    pub(super) fn path(&self, key: &Key) -> Option<Bytes> {
        let path = Bytes::from(format!("{}{key}", self.folder));
        (self.key(&path).as_ref() == Some(key)).then_some(path)
    }

    /// What is kept at `path`; none for what no version of ours writes.
    pub(super) fn key(&self, path: &[u8]) -> Option<Key> {
        let rest = std::str::from_utf8(path).ok()?.strip_prefix(self.folder.as_str())?;
        let parts: Vec<&str> = rest.split('/').collect();
        match *parts.as_slice() {
            [resource, name] => Key::new(resource, None, name).ok(),
            [group, resource, name] if group.contains('.') => Key::new(&format!("{group}/{resource}"), None, name).ok(),
            [resource, namespace, name] => Key::new(resource, Some(namespace), name).ok(),
            [group, resource, namespace, name] => Key::new(&format!("{group}/{resource}"), Some(namespace), name).ok(),
            _ => None,
        }
    }

    /// The paths of the range's keys are at or after the first and before the second.
    pub(super) fn bounds(&self, range: &Range) -> (Bytes, Bytes) {
        let folder = match range {
            Range::All => self.folder.clone(),
            Range::Resource(resource) => format!("{}{resource}/", self.folder),
            Range::Namespace { resource, namespace } => format!("{}{resource}/{namespace}/", self.folder),
        };
        // The character after the slash.
        let end = format!("{}0", folder.trim_end_matches('/'));
        (folder.into(), end.into())
    }
}

/// The first path after `path`.
pub(super) fn after(path: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(path.len() + 1);
    next.extend_from_slice(path);
    next.push(0);
    next.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn layout() -> Layout {
        Layout::new("/registry").unwrap()
    }

    #[test]
    fn keys_lie_where_kubernetes_has_them() {
        for (resource, namespace, name, path) in [
            ("redis.kun.io/redisclusters", Some("shop"), "orders", "/registry/redis.kun.io/redisclusters/shop/orders"),
            ("redis.kun.io/redispolicies", None, "house", "/registry/redis.kun.io/redispolicies/house"),
            ("apps/statefulsets", Some("shop"), "orders-0", "/registry/apps/statefulsets/shop/orders-0"),
            ("pods", Some("shop"), "orders-0-0", "/registry/pods/shop/orders-0-0"),
            ("namespaces", None, "shop", "/registry/namespaces/shop"),
        ] {
            let key = Key::new(resource, namespace, name).unwrap();
            assert_eq!(layout().path(&key), Some(Bytes::from(path)));
            assert_eq!(layout().key(path.as_bytes()), Some(key));
        }
    }

    #[test]
    fn a_key_that_would_be_read_back_as_another_has_no_place() {
        for (resource, namespace) in [("apps/things", None), ("odd.plural", Some("shop"))] {
            assert_eq!(layout().path(&Key::new(resource, namespace, "a").unwrap()), None);
        }
    }

    #[test]
    fn what_is_not_ours_is_no_key() {
        let foreign =
            ["compact_rev_key", "/registry", "/registry/", "/registry/pods", "/other/pods/a/b", "/registryx/pods/a/b"];
        for path in foreign.into_iter().chain(["/registry/a.b/c/d/e/f", "/registry/pods/../b", "/registry/pods//b"]) {
            assert_eq!(layout().key(path.as_bytes()), None, "{path}");
        }
        assert_eq!(layout().key(b"/registry/pods/a/\xff"), None);
    }

    #[test]
    fn a_prefix_is_a_folder() {
        for prefix in ["registry", "/registry", "/registry/"] {
            assert_eq!(Layout::new(prefix), Some(layout()));
        }
        for prefix in ["", "/", "//", "/a//b", "/a/../b", "/a/./b", "/a\nb", &"x".repeat(254)] {
            assert_eq!(Layout::new(prefix), None, "{prefix:?}");
        }
    }

    proptest! {
        #[test]
        fn ranges_hold_their_keys_and_no_others(
            resource in prop_oneof!["[a-b]{1,2}", "[a-b]{1,2}[.][a-b]/[a-b]{1,2}"],
            namespace in prop::option::of("[a-b.-]{1,2}x"),
            name in "[a-b.-]{1,2}x",
            other in ("[a-b]{1,2}", "[a-b.-]{1,2}x"),
        ) {
            let key = Key::new(&resource, namespace.as_deref(), &name).unwrap();
            let path = layout().path(&key).unwrap();
            prop_assert_eq!(layout().key(&path), Some(key.clone()));
            for range in [Range::All, Range::of(&other.0, None), Range::of(&other.0, Some(&other.1))] {
                let (from, to) = layout().bounds(&range);
                prop_assert_eq!(range.contains(&key), path >= from && path < to);
            }
        }
    }
}
