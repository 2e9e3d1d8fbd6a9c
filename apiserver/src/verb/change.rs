//! What update, patch, scale and status have in common: read the live object, make the new one from it, admit, validate,
//! write if it differs — and all of it again if somebody else was faster.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use serde_json::{Value, json};
use store::{Refusal, Write};
use tokio::time::Instant;

use super::{
    Work,
    create::{encode, stamped},
    incoming,
    options::WriteOptions,
    scale,
};
use crate::{
    admission::Operation,
    error::{Cause, Error, Result},
    object::{
        meta,
        owned::{self, Endpoint, Hand},
    },
    registry::{Kind, ScalePaths},
    storage::{Live, WriteError},
    world,
};

/// Most attempts of one change. Each lost race means that another writer succeeded; a thousand of them within one
/// request's time is a hot spot nobody is helped by serving further.
const ATTEMPTS_MAX: usize = 1000;

/// Which part of the object may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status.
    Main,
    /// Only the status.
    Status,
    /// Only `spec.finalizers` (namespaces).
    Finalize,
}

/// How admission sees the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// As it is.
    Object,
    /// As a Scale.
    Scale(ScalePaths),
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which part.
    pub part: Part,
    /// How admission sees it.
    pub face: Face,
    /// Options.
    pub options: WriteOptions,
    /// Their kind: `UpdateOptions` or `PatchOptions`.
    pub options_kind: &'static str,
    /// Another uid than the live one is an immutable field (patch), not a failed precondition (update).
    pub uid_is_field: bool,
    /// The new object comes with its owners written down: an apply.
    pub is_owned: bool,
    /// The object's generation afterwards; absent: it counts changes.
    pub generation: Option<i64>,
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct Changed {
    /// As kept: encoded, with resourceVersion.
    pub json: Bytes,
}

impl Change {
    /// Runs the change. `make` makes the new object from the live one, which carries its resourceVersion; it runs again
    /// on a newer one when a write is lost to another writer.
    pub async fn run(&self, work: &Work<'_>, make: impl Fn(&Value) -> Result<Value> + Send + Sync) -> Result<Changed> {
        let key = work.key()?;
        let kind = work.route.kind;
        for _ in 0..ATTEMPTS_MAX {
            let live = work.storage.live(kind, &key).await?;
            let new = make(&live.value)?;
            self.check_preconditions(kind, &new, &live)?;
            let new = self.admit(work, kind, new, &live).await?;
            match self.write(work, &key, new, &live).await? {
                Some(changed) => return Ok(changed),
                None if work.context.deadline.is_some_and(|deadline| Instant::now() >= deadline) => break,
                None => {}
            }
        }
        Err(Error::Timeout("request did not complete within the allotted timeout".to_owned()))
    }

    /// A version or uid in the new object must be the live one's.
    fn check_preconditions(&self, kind: &Kind, new: &Value, live: &Live) -> Result<()> {
        let name = meta::text(&live.value, "name");
        let (uid, live_uid) = (meta::text(new, "uid"), meta::text(&live.value, "uid"));
        if !uid.is_empty() && uid != live_uid {
            if self.uid_is_field {
                let cause = Cause::invalid("metadata.uid", &meta::quoted(uid), "field is immutable");
                return Err(Error::Invalid { kind: kind.qualified(), name: name.to_owned(), causes: vec![cause] });
            }
            let message = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {live_uid}");
            return Err(conflict(kind, name, message));
        }
        let version = meta::text(new, "resourceVersion");
        if !version.is_empty() && version != live.object.revision().to_string() {
            let message = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(conflict(kind, name, message.to_owned()));
        }
        Ok(())
    }

    /// Defaults → mutating admission → defaults → prepare → validate → validating admission.
    async fn admit(&self, work: &Work<'_>, kind: &Kind, mut new: Value, live: &Live) -> Result<Value> {
        incoming::default(kind, &mut new);
        if !self.is_owned {
            let now = world::rfc3339(work.world.now());
            owned::track(kind, Some(&live.value), &mut new, self.hand(&now));
        }
        let owners = meta::get(&new, "managedFields").cloned();
        let shown_kind = match self.face {
            Face::Object => None,
            Face::Scale(_) => Some(scale::group_version()),
        };
        let mut attributes =
            work.attributes(Operation::Update, kind, shown_kind, self.options.object(self.options_kind));
        attributes.old_object = Some(self.show(&live.value));
        // From here on the new object carries the live one's version, as admission expects.
        meta::keep(&mut new, "resourceVersion", &live.value);
        let mut new = match self.face {
            Face::Object => work.admission.mutate(&attributes, new).await?,
            Face::Scale(paths) => {
                let shown = work.admission.mutate(&attributes, scale::of(&paths, &new)).await?;
                scale::into(&paths, &shown, new)?
            }
        };
        warn_of_owners(work, owned::repair(&mut new, owners));
        incoming::settle(kind, &mut new)?;
        let forbidden = match self.part {
            Part::Main => meta::deletion_faults(&new, &live.value),
            Part::Status | Part::Finalize => Vec::new(),
        };
        let new = Arc::new(self.prepare(kind, new, &live.value));
        self.validate(work, kind, &new, live, forbidden)?;
        attributes.object = Some(self.show(&new));
        work.admission.validate(&attributes).await?;
        drop(attributes);
        Ok(Arc::unwrap_or_clone(new))
    }

    /// Whose change it is, for the owners of what it changes.
    #[must_use]
    pub fn hand<'a>(&'a self, now: &'a str) -> Hand<'a> {
        let endpoint = match (self.part, self.face) {
            (_, Face::Scale(_)) => Endpoint::Scale,
            (Part::Main, Face::Object) => Endpoint::Main,
            (Part::Status, Face::Object) => Endpoint::Status,
            (Part::Finalize, Face::Object) => Endpoint::Finalize,
        };
        Hand { manager: &self.options.manager, endpoint, now }
    }

    /// What admission sees of an object.
    fn show(&self, object: &Arc<Value>) -> Arc<Value> {
        match self.face {
            Face::Object => Arc::clone(object),
            Face::Scale(paths) => Arc::new(scale::of(&paths, object)),
        }
    }

    /// Puts back what this part may not change, and counts the generation.
    fn prepare(&self, kind: &Kind, mut new: Value, live: &Value) -> Value {
        match self.part {
            Part::Main => {
                for field in IDENTITY {
                    meta::keep(&mut new, field, live);
                }
                if kind.has_status() {
                    keep_member(&mut new, "status", live);
                }
                kind.strategy.prepare_update(&mut new, live);
                match self.generation {
                    Some(generation) => meta::set(&mut new, "generation", generation),
                    None => count_generation(kind, &mut new, live),
                }
                new
            }
            Part::Status => {
                let mut object = live.clone();
                keep_member(&mut object, "status", &new);
                meta::keep(&mut object, "managedFields", &new);
                object
            }
            Part::Finalize => {
                let mut object = live.clone();
                let finalizers = new.pointer("/spec/finalizers").cloned().unwrap_or_else(|| json!([]));
                let spec = object.as_object_mut().map(|map| map.entry("spec").or_insert_with(|| json!({})));
                if let Some(spec) = spec.and_then(Value::as_object_mut) {
                    spec.insert("finalizers".to_owned(), finalizers);
                }
                meta::keep(&mut object, "managedFields", &new);
                object
            }
        }
    }

    /// `causes` are faults that were found before.
    fn validate(&self, work: &Work<'_>, kind: &Kind, new: &Value, live: &Live, mut causes: Vec<Cause>) -> Result<()> {
        let old = live.value.as_ref();
        causes.extend(added(shape_faults(kind, new), || shape_faults(kind, old)));
        causes.extend(meta::update_faults(new, old));
        if !kind.is_built_in() {
            causes.extend(meta::size_faults(new, Some(old)));
        }
        if causes.is_empty() {
            causes = match self.part {
                Part::Main => added(kind.strategy.update_faults(new, old), || kind.strategy.faults(old)),
                Part::Status => added(kind.strategy.status_faults(new), || kind.strategy.status_faults(old)),
                Part::Finalize => Vec::new(),
            };
        }
        if causes.is_empty() {
            meta::warnings(new).into_iter().for_each(|text| work.context.warnings.add(text));
            return Ok(());
        }
        Err(Error::Invalid { kind: kind.qualified(), name: meta::text(old, "name").to_owned(), causes })
    }

    /// Stores what differs. `None` if another writer was faster.
    async fn write(&self, work: &Work<'_>, key: &store::Key, mut new: Value, live: &Live) -> Result<Option<Changed>> {
        let expected = live.object.revision();
        owned::keep_times(&mut new, &live.value);
        // What is stored in an old way is put right by any write, also by one that changes nothing.
        if new == *live.value && !live.object.is_stale() {
            return Ok(Some(Changed { json: live.object.json() }));
        }
        let is_finished = is_finished(work.route.kind, &new);
        let value = encode(work.route.kind, new)?;
        if self.options.dry_run {
            return Ok(Some(Changed { json: stamped(&value, expected)? }));
        }
        let write = if is_finished {
            Write::delete(key.clone(), expected)
        } else {
            Write::update(key.clone(), expected, value.clone())
        };
        match work.storage.write(write).await {
            // What is gone had its last version before.
            Ok(_) if is_finished => Ok(Some(Changed { json: stamped(&value, expected)? })),
            Ok(revision) => Ok(Some(Changed { json: stamped(&value, revision)? })),
            Err(WriteError::Refused(Refusal::Absent | Refusal::Conflict { .. } | Refusal::Exists { .. })) => Ok(None),
            Err(WriteError::Failed(error)) => Err(error),
        }
    }
}

/// What a client cannot change: kept from the live object without a word.
const IDENTITY: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "resourceVersion",
];

/// A webhook broke the list of owners; it was put back.
pub fn warn_of_owners(work: &Work<'_>, broken: Option<String>) {
    if let Some(why) = broken {
        work.context.warnings.add(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission \
             controller; please fix your requests: {why}"
        ));
    }
}

/// True if the object was to go and nothing holds it any more.
#[must_use]
pub fn is_finished(kind: &Kind, object: &Value) -> bool {
    let grace = meta::get(object, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    meta::is_terminating(object) && grace == 0 && !kind.strategy.is_held(object)
}

/// What is wrong with an object by its schema and its metadata.
fn shape_faults<'a>(kind: &Kind, object: &'a Value) -> impl Iterator<Item = Cause> + use<'a> {
    kind.shape.faults(object).into_iter().chain(meta::faults(object, kind.strategy.name_rule()))
}

/// The faults a change adds, of very many the first ones. What was wrong before and is still the same is not its fault: an object accepted by laxer
/// rules can still be repaired, and its finalizers taken away.
fn added<B: IntoIterator<Item = Cause>>(
    causes: impl IntoIterator<Item = Cause>,
    before: impl FnOnce() -> B,
) -> Vec<Cause> {
    let mut causes = causes.into_iter().peekable();
    if causes.peek().is_none() {
        return Vec::new();
    }
    let before: BTreeSet<Cause> = before().into_iter().collect();
    causes.filter(|cause| !before.contains(cause)).take(meta::REPORTED_MAX).collect()
}

fn conflict(kind: &Kind, name: &str, message: String) -> Error {
    Error::Conflict { resource: kind.resource(), name: name.to_owned(), message, retry_after: None }
}

fn keep_member(object: &mut Value, member: &str, from: &Value) {
    if let Some(map) = object.as_object_mut() {
        match from.get(member) {
            Some(value) => map.insert(member.to_owned(), value.clone()),
            None => map.remove(member),
        };
    }
}

/// +1 for any change outside of metadata and status.
fn count_generation(kind: &Kind, new: &mut Value, live: &Value) {
    if !kind.strategy.has_generation() {
        return;
    }
    let is_content = |key: &&String| !matches!(key.as_str(), "metadata" | "status");
    let keys = |object: &Value| -> BTreeSet<String> {
        object.as_object().into_iter().flat_map(|map| map.keys()).filter(is_content).cloned().collect()
    };
    let is_same = |key: &String| match (new.get(key), live.get(key)) {
        (Some(new), Some(live)) => is_same(kind, &mut vec![key], new, live),
        (Some(_), None) | (None, Some(_)) | (None, None) => false,
    };
    if keys(new) != keys(live) || !keys(new).iter().all(is_same) {
        meta::set(new, "generation", next_generation(live));
    }
}

/// Equal as Kubernetes compares what its own kinds hold (`equality.Semantic`): quantities and durations by their amounts.
fn is_same<'a>(kind: &Kind, path: &mut Vec<&'a str>, one: &'a Value, other: &'a Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| {
                    path.push(key);
                    let same = other.get(key).is_some_and(|other| is_same(kind, path, value, other));
                    path.pop();
                    same
                })
        }
        (one, other) if one == other => true,
        (one, other) => {
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            kind.strategy.measure(path).is_some_and(|measure| measure.is_same(&text(one), &text(other)))
        }
    }
}

/// The generation after the live one.
#[must_use]
pub fn next_generation(live: &Value) -> i64 {
    meta::get(live, "generation").and_then(Value::as_i64).unwrap_or(0).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_wrong_before_is_not_the_fault_of_a_change_however_much_it_was() {
        let fault = |n: usize| Cause::invalid("metadata.finalizers", &format!("\"!{n}\""), "no name");
        let before = || (0..1000).map(fault);
        assert_eq!(added((1..1000).map(fault), before), [], "one is mended");
        assert_eq!(added((1..1001).map(fault), before), [fault(1000)], "one is added at the end");
        let many: Vec<Cause> = (2000..2000 + meta::REPORTED_MAX).map(fault).collect();
        assert_eq!(added((2000..3000).map(fault), before), many);
        assert_eq!(added([], || -> [Cause; 0] { panic!("nobody asks what was wrong before") }), []);
    }
}
