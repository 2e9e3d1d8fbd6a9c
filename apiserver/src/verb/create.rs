//! Create, read as a story: decode → defaults → mutating admission → defaults → prepare → validate → validating
//! admission → store.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use store::{Refusal, Revision, Write};

use super::{Answer, Work, beside, change::warn_of_owners, get, incoming, options::WriteOptions};
use crate::{
    admission::{Attributes, Operation},
    error::{Error, Result},
    object::{
        meta, name,
        owned::{self, Endpoint, Hand},
        owners,
    },
    registry::Kind,
    storage::{Storage, WriteError},
    world,
};

/// How often a generated name that is taken is made anew.
const NAME_TRIES: usize = 8;

/// POST on a collection.
pub async fn create(work: &Work<'_>, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let options = WriteOptions::parse(work.context, "CreateOptions")?;
    let kind = work.route.kind;
    let object = incoming::object(work, kind, bytes, content_type, options.validation)?;
    let attributes = work.attributes(Operation::Create, kind, None, options.object("CreateOptions"));
    let object = owned_by(work, kind, object, &options.manager);
    let json = store_beside(work, kind, object, attributes).await?;
    Ok(Answer::Object { created: true, kind_of: kind.plural.to_owned(), json })
}

/// The object with its defaults, without what only the server may say, its fields owned by who makes it.
pub fn owned_by(work: &Work<'_>, kind: &Kind, mut object: Value, manager: &str) -> Value {
    for field in SERVERS {
        meta::remove(&mut object, field);
    }
    dedup_owners(work, &mut object);
    incoming::default(kind, &mut object);
    let now = world::rfc3339(work.world.now());
    owned::track(kind, None, &mut object, Hand { manager, endpoint: Endpoint::Main, now: &now });
    object
}

/// Owners named twice are named once, with a warning.
fn dedup_owners(work: &Work<'_>, object: &mut Value) {
    let uids = owners::dedup(object);
    if !uids.is_empty() {
        work.context.warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such \
             requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            uids.join(", ")
        ));
    }
}

/// Of metadata, what only the server may say.
const SERVERS: [&str; 5] = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// Which object is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// One that has never been.
    New,
    /// One that was lost.
    Known {
        /// The uid it had.
        uid: String,
        /// The generation it had.
        generation: i64,
    },
}

/// Everything after decoding and defaults, for who makes an object by itself; where such objects get in each other's way, it is looked
/// once more after the write.
pub async fn store_beside(work: &Work<'_>, kind: &Kind, object: Value, attributes: Attributes) -> Result<Bytes> {
    let is_dry = attributes.dry_run;
    let json = admit_and_store(work, kind, object, attributes).await?;
    if !is_dry && kind.strategy.exclusive_by().is_some() {
        beside::look_again(work, kind, &get::value(kind, &json)?).await?;
    }
    Ok(json)
}

/// Everything after decoding and defaults; also how actions leave their records. `attributes` say what admission is asked about.
pub async fn admit_and_store(work: &Work<'_>, kind: &Kind, object: Value, attributes: Attributes) -> Result<Bytes> {
    admit_and_store_as(work, kind, object, attributes, &Identity::New).await
}

/// The same for an object that may have been before.
pub async fn admit_and_store_as(
    work: &Work<'_>,
    kind: &Kind,
    object: Value,
    mut attributes: Attributes,
    identity: &Identity,
) -> Result<Bytes> {
    attributes.name = meta::text(&object, "name").to_owned();
    let namespace = attributes.namespace.clone();
    let owners = meta::get(&object, "managedFields").cloned();
    let mut object = work.admission.mutate(&attributes, object).await?;
    warn_of_owners(work, owned::repair(&mut object, owners));
    incoming::settle(kind, &mut object)?;
    let object = incoming::placed(object, namespace.as_deref())?;
    let has_base = !meta::text(&object, "generateName").is_empty();
    let tries = if has_base && meta::text(&object, "name").is_empty() { NAME_TRIES } else { 1 };
    let mut last = Err(Error::internal("no name was tried"));
    for _ in 0..tries {
        let prepared = prepare(work, kind, object.clone(), identity);
        last = validate_and_write(work, kind, prepared, &mut attributes).await;
        if !matches!(last, Err(Error::AlreadyExists { .. })) {
            break;
        }
    }
    last.map_err(|error| if has_base { generated(error) } else { error })
}

/// What only the server may say: identity, time, generation, first status.
fn prepare(work: &Work<'_>, kind: &Kind, mut object: Value, identity: &Identity) -> Value {
    let base = meta::text(&object, "generateName").to_owned();
    if meta::text(&object, "name").is_empty() && !base.is_empty() {
        let name = name::generate(&base, work.world.uuid().as_bytes());
        meta::set(&mut object, "name", name);
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        meta::remove(&mut object, field);
    }
    let (uid, generation) = match identity {
        Identity::New => (work.world.uuid().to_string(), 1),
        Identity::Known { uid, generation } => (uid.clone(), *generation),
    };
    meta::set(&mut object, "uid", uid);
    meta::set(&mut object, "creationTimestamp", world::rfc3339(work.world.now()));
    if kind.strategy.has_generation() {
        meta::set(&mut object, "generation", generation);
    }
    dedup_owners(work, &mut object);
    if let Some(map) = object.as_object_mut().filter(|_| kind.has_status()) {
        map.remove("status");
    }
    kind.strategy.prepare_create(&mut object, &work.context.user);
    kind.shape.default(&mut object);
    object
}

async fn validate_and_write(work: &Work<'_>, kind: &Kind, object: Value, attributes: &mut Attributes) -> Result<Bytes> {
    let mut causes = kind.shape.faults(&object);
    causes.extend(meta::faults(&object, kind.strategy.name_rule()).take(meta::REPORTED_MAX));
    if !kind.is_built_in() {
        causes.extend(meta::size_faults(&object, None));
    }
    if causes.is_empty() {
        // Particular rules read typed objects; they have nothing to say about one whose types are wrong.
        causes = kind.strategy.faults(&object);
    }
    let name = meta::text(&object, "name").to_owned();
    if !causes.is_empty() {
        return Err(Error::Invalid { kind: kind.qualified(), name, causes });
    }
    beside::check(work, kind, &object).await?;
    meta::warnings(&object).into_iter().for_each(|text| work.context.warnings.add(text));
    attributes.name.clone_from(&name);
    let object = Arc::new(object);
    attributes.object = Some(Arc::clone(&object));
    work.admission.validate(attributes).await?;
    attributes.object = None;
    // Webhooks may take long, and others write meanwhile: what is in the way now is looked for in turn, with nothing but the write after it.
    let _turn = beside::turn(work, kind).await;
    beside::check(work, kind, &object).await?;
    write(work, kind, Arc::unwrap_or_clone(object), &name, attributes).await
}

async fn write(work: &Work<'_>, kind: &Kind, object: Value, name: &str, attributes: &Attributes) -> Result<Bytes> {
    let key = Storage::key(kind, attributes.namespace.as_deref(), name)?;
    let version = meta::text(&object, "resourceVersion").parse::<u64>().unwrap_or(0);
    let value = encode(kind, object)?;
    if attributes.dry_run {
        work.storage.fresh().await?;
        return match work.storage.cached(kind, &key)? {
            Some(current) => Err(exists(kind, name, current.as_bytes())),
            None => Ok(value),
        };
    }
    // What is no number counts as none, as in Kubernetes.
    if version > 0 {
        return Err(Error::Unmergeable("resourceVersion should not be set on objects to be created".to_owned()));
    }
    match work.storage.write(Write::create(key, value.clone())).await {
        Ok(revision) => stamped(&value, revision),
        Err(WriteError::Refused(Refusal::Exists { current } | Refusal::Conflict { current })) => {
            Err(exists(kind, name, &current.value))
        }
        Err(WriteError::Refused(Refusal::Absent)) => Err(Error::internal("creating: the store answered Absent")),
        Err(WriteError::Failed(error)) => Err(error),
    }
}

fn exists(kind: &Kind, name: &str, current: &[u8]) -> Error {
    let current: Value = serde_json::from_slice(current).unwrap_or_default();
    let terminating = meta::is_terminating(&current);
    Error::AlreadyExists { resource: kind.resource(), name: name.to_owned(), terminating, generated: false }
}

fn generated(error: Error) -> Error {
    match error {
        Error::AlreadyExists { resource, name, terminating, generated: _ } => {
            Error::AlreadyExists { resource, name, terminating, generated: true }
        }
        other => other,
    }
}

/// As stored: in the version that is kept, without resourceVersion, which the store itself keeps.
pub fn encode(kind: &Kind, object: Value) -> Result<Bytes> {
    let mut object = kind.kept(object);
    meta::remove(&mut object, "resourceVersion");
    serde_json::to_vec(&object)
        .map(Bytes::from)
        .map_err(|error| Error::internal(format!("encoding the object: {error}")))
}

/// As answered: with its resourceVersion.
pub fn stamped(value: &[u8], revision: Revision) -> Result<Bytes> {
    let stamped = store::cache::with_revision(value, revision);
    stamped.map_err(|error| Error::internal(format!("stamping the object: {error}")))
}
