//! The versions of a kind. Its objects are kept in one of them, the hub; every other is a conversion to the hub and back.
//!
//! A conversion is total: what it does not understand it leaves as it is, and validation tells. It must lose nothing that
//! the hub knows: what its own version has no field for it carries in an annotation. It must not know storage or HTTP.

use std::{fmt, sync::Arc};

use merge::Node;
use serde_json::{Map, Value};

use super::Kind;
use crate::object::shape::Shape;

/// How the objects of one version become those of the hub, and back. `apiVersion`, `kind` and, of metadata, everything
/// but labels and annotations are taken care of elsewhere.
pub trait Conversion: Send + Sync {
    /// From this version to the hub's, in which it is kept.
    fn keep(&self, object: &mut Map<String, Value>);
    /// From the hub's to this version, in which it is shown.
    fn show(&self, object: &mut Map<String, Value>);
}

/// One version of a kind.
#[derive(Clone)]
pub struct Version {
    /// `v1`, `v1beta1`.
    pub name: &'static str,
    /// `apiVersion` of its objects.
    pub api_version: String,
    /// Its schema, compiled.
    pub shape: Arc<Shape>,
    /// `None`: it is the hub.
    conversion: Option<Arc<dyn Conversion>>,
}

/// All served versions of a kind, the hub first, then as in the registry.
#[derive(Clone, Default)]
pub struct Versions(Arc<[Version]>);

impl Versions {
    /// Those of the kinds of one resource.
    pub(super) fn of(kinds: &[&Kind]) -> Self {
        let version = |kind: &&Kind| Version {
            name: kind.version,
            api_version: kind.api_version(),
            shape: Arc::clone(&kind.shape),
            conversion: kind.conversion.clone(),
        };
        let mut versions: Vec<Version> = kinds.iter().map(version).collect();
        versions.sort_by_key(|version| version.conversion.is_some());
        Self(versions.into())
    }

    /// Each of them, the hub first.
    pub fn iter(&self) -> impl Iterator<Item = &Version> {
        self.0.iter()
    }

    /// The version objects are kept in.
    #[must_use]
    pub fn hub(&self) -> Option<&Version> {
        self.0.first().filter(|first| first.conversion.is_none())
    }

    /// A version by the `apiVersion` of its objects.
    #[must_use]
    pub fn find(&self, api_version: &str) -> Option<&Version> {
        self.iter().find(|version| version.api_version == api_version)
    }

    /// An object of one version in another; as it is where one of them is not served.
    #[must_use]
    pub fn convert(&self, object: Value, from: &str, to: &str) -> Value {
        let (true, Some(old), Some(new), Some(hub)) = (from != to, self.find(from), self.find(to), self.hub()) else {
            return object;
        };
        let there = old.converted(object, &hub.api_version, |conversion, object| conversion.keep(object));
        new.converted(there, &new.api_version, |conversion, object| conversion.show(object))
    }
}

impl Version {
    fn converted(&self, object: Value, to: &str, by: impl Fn(&dyn Conversion, &mut Map<String, Value>)) -> Value {
        let Value::Object(mut map) = object else { return object };
        if let Some(conversion) = &self.conversion {
            let kind = map.get("kind").cloned();
            let metadata = map.get("metadata").cloned();
            by(conversion.as_ref(), &mut map);
            put(&mut map, "kind", kind);
            let metadata = identity(metadata, map.get("metadata"));
            put(&mut map, "metadata", metadata);
        }
        put(&mut map, "apiVersion", Some(Value::from(to)));
        Value::Object(map)
    }
}

fn put(map: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(map.insert(name.to_owned(), value)),
        None => drop(map.remove(name)),
    }
}

/// A conversion may change labels and annotations; who the object is stays (apiextensions' rule for conversions).
fn identity(before: Option<Value>, after: Option<&Value>) -> Option<Value> {
    let mut metadata = before?;
    let map = metadata.as_object_mut()?;
    for name in ["labels", "annotations"] {
        put(map, name, after.and_then(|after| after.get(name)).cloned());
    }
    Some(metadata)
}

impl merge::own::Versions for Versions {
    fn node(&self, api_version: &str) -> Option<&Node> {
        self.find(api_version).map(|version| version.shape.shared())
    }

    fn convert(&self, object: &Value, from: &str, to: &str) -> Value {
        self.convert(object.clone(), from, to)
    }
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|version| &version.api_version)).finish()
    }
}
