//! Who owns the fields of an object: the bridge between the kinds of the registry and the pure rules of `merge`.

use merge::{
    fields::{Path, Set},
    own::{self, Author, Frame},
};
use serde_json::Value;

use super::meta;
use crate::registry::Kind;

/// Which endpoint writes: it owns nothing of what it does not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The object itself.
    Main,
    /// `/status`.
    Status,
    /// `/scale`: one field of the parent.
    Scale,
    /// `/finalize` of a namespace.
    Finalize,
}

impl Endpoint {
    const fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
        }
    }

    fn reset(self, kind: &Kind) -> Set {
        match self {
            Self::Status => Set::of([Path::of(&["spec"])]),
            Self::Main | Self::Scale | Self::Finalize if kind.has_status() => Set::of([Path::of(&["status"])]),
            Self::Main | Self::Scale | Self::Finalize => Set::default(),
        }
    }
}

/// One write: whose, through which endpoint, and when.
#[derive(Clone, Copy, Debug)]
pub struct Hand<'a> {
    /// Field manager.
    pub manager: &'a str,
    /// Through which endpoint.
    pub endpoint: Endpoint,
    /// RFC 3339, UTC, seconds.
    pub now: &'a str,
}

impl<'a> Hand<'a> {
    fn author(&self) -> Author<'a> {
        let now = if self.endpoint == Endpoint::Scale { "" } else { self.now };
        Author { name: self.manager, subresource: self.endpoint.subresource(), now }
    }
}

/// Writes down who owns the fields after a write that is no apply. `live` is `None` when the object is made.
pub fn track(kind: &Kind, live: Option<&Value>, new: &mut Value, hand: Hand<'_>) {
    let (api_version, reset) = (kind.api_version(), hand.endpoint.reset(kind));
    let frame = Frame { node: kind.shape.shared(), api_version: &api_version, versions: &kind.versions, reset: &reset };
    let managed = own::update(frame, live, new, hand.author());
    put(new, managed.encode());
}

/// The live object with a configuration applied to it, its owners written down; `None`: there is no object yet.
///
/// # Errors
/// Others own what it changes, or it does not fit.
pub fn apply(
    kind: &Kind,
    live: Option<&Value>,
    config: &Value,
    hand: Hand<'_>,
    force: bool,
) -> Result<Value, own::Error> {
    let (api_version, reset) = (kind.api_version(), hand.endpoint.reset(kind));
    let frame = Frame { node: kind.shape.shared(), api_version: &api_version, versions: &kind.versions, reset: &reset };
    let applied = match own::apply(frame, live, config, hand.author(), force) {
        Err(own::Error::Conflicts(conflicts)) if hand.manager == KUBECTL => {
            let Some(allowed) = live.and_then(|live| last_applied(kind, live)) else {
                return Err(own::Error::Conflicts(conflicts));
            };
            let conflicts = own::beyond(conflicts, &allowed);
            if !conflicts.is_empty() {
                return Err(own::Error::Conflicts(conflicts));
            }
            own::apply(frame, live, config, hand.author(), true)?
        }
        other => other?,
    };
    let mut object = applied.object;
    if hand.manager == KUBECTL {
        renew_last_applied(&mut object, config);
    }
    put(&mut object, applied.managed.encode());
    Ok(object)
}

/// The manager that kubectl applies as; only its objects carry what they were applied with as an annotation.
const KUBECTL: &str = "kubectl";
/// What kubectl applied last, on the client's side.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Most bytes of all annotations together.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Fields that were applied by a kubectl of the old way and are still the same: the new way may take them over.
fn last_applied(kind: &Kind, live: &Value) -> Option<Set> {
    let text = meta::get(live, "annotations")?.get(LAST_APPLIED)?.as_str().filter(|text| !text.is_empty())?;
    let last: Value = serde_json::from_str(text).ok()?;
    (last.get("apiVersion")?.as_str()? == kind.api_version()).then(|| own::still_as(kind.shape.shared(), &last, live))
}

/// The annotation follows, where there is one, so that an old kubectl can go on; one that would not fit is dropped.
fn renew_last_applied(object: &mut Value, config: &Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    annotations.insert(LAST_APPLIED.to_owned(), Value::String(format!("{config}\n")));
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_MAX {
        annotations.remove(LAST_APPLIED);
    }
}

fn put(object: &mut Value, list: Option<Value>) {
    match list {
        Some(list) => meta::set(object, "managedFields", list),
        None => meta::remove(object, "managedFields"),
    }
}

/// A write that changes nothing but the times of its owners changes nothing: the live times stay.
pub fn keep_times(new: &mut Value, live: &Value) {
    if !is_same_but_owners(new, live) {
        return;
    }
    let (Some(list), Some(old)) = (meta::get(new, "managedFields"), meta::get(live, "managedFields")) else { return };
    if list != old && timeless(list) == timeless(old) {
        meta::set(new, "managedFields", old.clone());
    }
}

fn is_same_but_owners(one: &Value, other: &Value) -> bool {
    fn fields<'a>(value: Option<&'a Value>, but: &'static str) -> impl Iterator<Item = (&'a String, &'a Value)> {
        value.and_then(Value::as_object).into_iter().flatten().filter(move |(name, _)| *name != but)
    }
    fields(Some(one), "metadata").eq(fields(Some(other), "metadata"))
        && fields(one.get("metadata"), "managedFields").eq(fields(other.get("metadata"), "managedFields"))
}

fn timeless(list: &Value) -> Vec<Value> {
    let without = |entry: &Value| {
        let mut entry = entry.clone();
        if let Some(fields) = entry.as_object_mut() {
            fields.remove("time");
        }
        entry
    };
    let mut entries: Vec<Value> = list.as_array().into_iter().flatten().map(without).collect();
    // The order follows the times.
    entries.sort_by_key(ToString::to_string);
    entries
}

/// A webhook may change the list, but not into something that is none: then it is as before. Gives what is wrong.
pub fn repair(object: &mut Value, before: Option<Value>) -> Option<String> {
    if meta::get(object, "managedFields") == before.as_ref() {
        return None;
    }
    let error = merge::managed::Managed::decode(meta::get(object, "managedFields")).err()?;
    put(object, before);
    Some(error.to_string())
}
