//! THE list of kinds. Routing, discovery, OpenAPI, table columns, RBAC manifests
//! and the rights of standalone's own identities are computed from it.
//!
//! A new kind or a second group is an entry here (its list in `registry/`, its rules in `resource/`), never code in
//! the server.

use std::{collections::BTreeMap, sync::Arc};

pub mod access;
pub mod host;
pub mod kind;
mod policy;
pub mod rbac;
pub mod redis;
mod roles;
pub mod version;

pub use kind::{Column, DeletePolicy, Kind, Names, Review, ScalePaths, Scope, Subresource};
pub use version::{Conversion, Versions};

/// All kinds of a server, in a fixed order.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    kinds: Vec<Arc<Kind>>,
}

impl Registry {
    /// The given kinds, in this order. All versions of a kind must be among them.
    #[must_use]
    pub fn new(mut kinds: Vec<Kind>) -> Self {
        let family = |kind: &Kind| {
            let same: Vec<&Kind> =
                kinds.iter().filter(|other| (other.group, other.plural) == (kind.group, kind.plural)).collect();
            Versions::of(&same)
        };
        let families: Vec<Versions> = kinds.iter().map(family).collect();
        for (kind, versions) in kinds.iter_mut().zip(families) {
            kind.versions = versions;
        }
        Self { kinds: kinds.into_iter().map(Arc::new).collect() }
    }

    /// These kinds and those of another list.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.kinds.extend(other.kinds);
        self
    }

    /// Every kind.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().map(Arc::as_ref)
    }

    /// The kind behind a plural name.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.iter().find(|kind| kind.plural == plural && kind.group == group && kind.version == version)
    }

    /// True if the group is one of Kubernetes' own.
    #[must_use]
    pub fn is_built_in(&self, group: &str) -> bool {
        self.kinds.iter().any(|kind| kind.group == group && kind.is_built_in())
    }

    /// The kind behind a plural name, in the version it is kept in.
    #[must_use]
    pub fn resource(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.iter().find(|kind| kind.plural == plural && kind.group == group && kind.is_hub())
    }

    /// Every kind once, in the version it is kept in.
    pub fn hubs(&self) -> impl Iterator<Item = &Kind> {
        self.kinds().filter(|kind| kind.is_hub())
    }

    /// True if anything is served below this group and version.
    #[must_use]
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.kinds.iter().any(|kind| kind.group == group && kind.version == version)
    }

    /// The kinds of each group and version, groups in alphabetical order (the core group first).
    #[must_use]
    pub fn by_version(&self) -> BTreeMap<(&'static str, &'static str), Vec<&Kind>> {
        let mut map: BTreeMap<_, Vec<&Kind>> = BTreeMap::new();
        for kind in &self.kinds {
            map.entry((kind.group, kind.version)).or_default().push(kind);
        }
        map
    }

    /// The named groups with their versions, best version first (Kubernetes' version priority).
    #[must_use]
    pub fn groups(&self) -> BTreeMap<&'static str, Vec<&'static str>> {
        let mut map: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
        for kind in self.kinds.iter().filter(|kind| !kind.group.is_empty()) {
            let versions = map.entry(kind.group).or_default();
            if !versions.contains(&kind.version) {
                versions.push(kind.version);
            }
        }
        for versions in map.values_mut() {
            versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        }
        map
    }
}

/// v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > everything else.
fn priority(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(end);
        let (stage, minor) = match rest {
            "" => (3, "0"),
            beta if beta.starts_with("beta") => (2, beta.get(4..)?),
            alpha if alpha.starts_with("alpha") => (1, alpha.get(5..)?),
            _ => return None,
        };
        Some((stage, major.parse().ok()?, minor.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn versions_are_ordered_by_stability_before_number() {
        let mut versions = ["v1alpha1", "foo", "v1", "v2beta1", "v10", "v1beta2"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v10", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]);
    }

    #[test]
    fn no_two_entries_claim_the_same_name() {
        let registry = redis::registry().unwrap().and(host::registry().unwrap());
        let mut seen = std::collections::BTreeSet::new();
        for kind in registry.kinds() {
            assert!(seen.insert((kind.group, kind.plural)), "{} twice", kind.plural);
            for short in kind.short_names {
                assert!(seen.insert((kind.group, short)), "{short} twice");
            }
        }
    }
}
