//! DELETE of one object or of a collection. What a deletion does to an object is planned purely ([`plan`]), then written.

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use store::{Key, Refusal, Write};

use super::{
    Answer, Work,
    change::next_generation,
    create::{encode, stamped},
    list,
    options::{DeleteOptions, ListOptions, Propagation},
};
use crate::{
    admission::Operation,
    error::{Error, Result},
    object::meta::{self, FINALIZER_FOREGROUND, FINALIZER_ORPHAN},
    registry::{DeletePolicy, Kind},
    storage::{Live, WriteError},
    wire::decode,
    world,
};

/// Most attempts of one delete; see `change`.
const ATTEMPTS_MAX: usize = 1000;

/// Deletes of a collection that run side by side, so that they share the store's commits.
const DELETES_AT_ONCE: usize = 16;

/// What a deletion does to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// It goes.
    Gone,
    /// It stays, changed: marked, or with other finalizers.
    Marked(Value),
    /// It is marked already and nothing changes.
    Unchanged,
}

/// DELETE on an object.
pub async fn delete(work: &Work<'_>, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let options = options(work, bytes, content_type)?;
    let key = work.key()?;
    match one(work, &key, &options).await? {
        Deleted::Gone(live) => Ok(Answer::Plain(gone(work.route.kind, &live.value))),
        Deleted::Staying(json) => {
            Ok(Answer::Object { created: false, kind_of: work.route.kind.plural.to_owned(), json })
        }
    }
}

/// DELETE on a collection: object by object, as many single deletes as a client would send.
pub async fn delete_collection(work: &Work<'_>, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let options = options(work, bytes, content_type)?;
    let list_options = ListOptions::list(&work.context.call)?;
    let filter = list::filter(work)?;
    let listing = list::page(work, &list_options, filter).await?;
    for objects in listing.items.chunks(DELETES_AT_ONCE) {
        let mut running: Vec<BoxFuture<'_, Result<Deleted>>> = Vec::with_capacity(objects.len());
        for object in objects {
            running.push(Box::pin(one(work, object.key(), &options)));
        }
        for outcome in join_all(running).await {
            match outcome {
                // Somebody else was faster; the aim is reached.
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Answer::List(listing))
}

fn options(work: &Work<'_>, bytes: &[u8], content_type: &str) -> Result<DeleteOptions> {
    let body = if bytes.iter().all(u8::is_ascii_whitespace) {
        None
    } else {
        let fault = |why: &str| Error::bad_request(format!("error decoding DeleteOptions: {why}"));
        Some(decode::decode(bytes, content_type, &fault)?.value).filter(|body| !body.is_null())
    };
    body.iter().for_each(|body| work.context.record.options(body));
    DeleteOptions::parse(&work.context.call.query, body.as_ref(), &work.route.kind.api_version())
}

enum Deleted {
    Gone(Live),
    Staying(bytes::Bytes),
}

async fn one(work: &Work<'_>, key: &Key, options: &DeleteOptions) -> Result<Deleted> {
    let kind = work.route.kind;
    for _ in 0..ATTEMPTS_MAX {
        let live = work.storage.live(kind, key).await?;
        check_preconditions(kind, options, &live)?;
        admit(work, key, options, &live).await?;
        let causes = kind.strategy.delete_faults(&live.value);
        if !causes.is_empty() {
            return Err(Error::Invalid { kind: kind.qualified(), name: key.name().to_owned(), causes });
        }
        let expected = live.object.revision();
        let (write, value) = match plan(kind, &live.value, options, work.world.now()) {
            Plan::Unchanged => return Ok(Deleted::Staying(live.object.json())),
            Plan::Gone if options.dry_run => return Ok(Deleted::Gone(live)),
            Plan::Gone => (Write::delete(key.clone(), expected), None),
            Plan::Marked(new) => {
                let value = encode(kind, new)?;
                if options.dry_run {
                    return Ok(Deleted::Staying(stamped(&value, expected)?));
                }
                (Write::update(key.clone(), expected, value.clone()), Some(value))
            }
        };
        match (work.storage.write(write).await, value) {
            (Ok(_), None) => return Ok(Deleted::Gone(live)),
            (Ok(revision), Some(value)) => return Ok(Deleted::Staying(stamped(&value, revision)?)),
            (Err(WriteError::Failed(error)), _) => return Err(error),
            (Err(WriteError::Refused(Refusal::Absent | Refusal::Conflict { .. } | Refusal::Exists { .. })), _) => {}
        }
    }
    Err(Error::Timeout("request did not complete within the allotted timeout".to_owned()))
}

fn check_preconditions(kind: &Kind, options: &DeleteOptions, live: &Live) -> Result<()> {
    let revision = live.object.revision().to_string();
    let pairs = [
        ("UID", &options.uid, meta::text(&live.value, "uid"), "The object might have been deleted and then recreated"),
        ("ResourceVersion", &options.resource_version, revision.as_str(), "The object might have been modified"),
    ];
    for (what, wanted, have, hint) in pairs {
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != have) {
            let message = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({have}). {hint}"
            );
            let name = meta::text(&live.value, "name").to_owned();
            // As Kubernetes words it: this one conflict names the kind.
            return Err(Error::Conflict { resource: kind.qualified(), name, message, retry_after: None });
        }
    }
    Ok(())
}

/// Admission of a delete sees the old object only.
async fn admit(work: &Work<'_>, key: &Key, options: &DeleteOptions, live: &Live) -> Result<()> {
    let mut attributes = work.attributes(Operation::Delete, work.route.kind, None, options.object());
    attributes.name = key.name().to_owned();
    attributes.namespace = key.namespace().map(str::to_owned);
    attributes.old_object = Some(Arc::clone(&live.value));
    let object = work.admission.mutate(&attributes, Value::Null).await?;
    if !object.is_null() {
        return Err(Error::internal("a mutating webhook tried to change an object that is being deleted"));
    }
    work.admission.validate(&attributes).await
}

/// What a deletion does to an object.
#[must_use]
pub fn plan(kind: &Kind, live: &Value, options: &DeleteOptions, now: Timestamp) -> Plan {
    let mut new = live.clone();
    set_finalizers(&mut new, options.propagation);
    let grace = grace(kind, live, options);
    match (meta::is_terminating(live), grace) {
        (_, 0) if !kind.strategy.is_held(&new) => return Plan::Gone,
        (false, grace) => mark(kind, &mut new, grace, now),
        (true, grace) => shorten(&mut new, grace),
    }
    if new == *live { Plan::Unchanged } else { Plan::Marked(new) }
}

fn grace(kind: &Kind, live: &Value, options: &DeleteOptions) -> i64 {
    match kind.delete {
        DeletePolicy::Background => 0,
        // What needs no time to end gets none, whatever is asked for.
        DeletePolicy::Graceful => match kind.strategy.grace(live) {
            0 => 0,
            usual => options.grace.unwrap_or(usual),
        },
    }
}

/// Orphan and Foreground are finalizers of the garbage collector, which exclude each other; Background is neither.
fn set_finalizers(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let wanted = match propagation {
        Propagation::Orphan => Some(FINALIZER_ORPHAN),
        Propagation::Foreground => Some(FINALIZER_FOREGROUND),
        Propagation::Background => None,
    };
    let is_collectors = |name: &str| name == FINALIZER_ORPHAN || name == FINALIZER_FOREGROUND;
    let mut list: Vec<String> = meta::finalizers(object)
        .into_iter()
        .filter(|name| !is_collectors(name) || Some(*name) == wanted)
        .map(str::to_owned)
        .collect();
    if let Some(wanted) = wanted.filter(|wanted| !list.iter().any(|name| name == wanted)) {
        list.push(wanted.to_owned());
    }
    if list.is_empty() {
        meta::remove(object, "finalizers");
    } else {
        meta::set(object, "finalizers", json!(list));
    }
}

fn mark(kind: &Kind, new: &mut Value, grace: i64, now: Timestamp) {
    let end = Timestamp::from_second(now.as_second().saturating_add(grace)).unwrap_or(now);
    meta::set(new, "deletionTimestamp", world::rfc3339(end));
    meta::set(new, "deletionGracePeriodSeconds", json!(grace));
    if kind.strategy.has_generation() {
        let generation = next_generation(new);
        meta::set(new, "generation", generation);
    }
    kind.strategy.mark_terminating(new);
}

/// A second delete may only bring the end closer.
fn shorten(new: &mut Value, grace: i64) {
    let before = meta::get(new, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let end = meta::text(new, "deletionTimestamp").parse::<Timestamp>();
    let (true, Ok(end)) = (grace < before, end) else { return };
    let sooner = end.as_second().saturating_sub(before).saturating_add(grace);
    meta::set(new, "deletionTimestamp", world::rfc3339(Timestamp::from_second(sooner).unwrap_or(end)));
    meta::set(new, "deletionGracePeriodSeconds", json!(grace));
}

/// The Status of an object that is gone; kubectl waits by its uid.
fn gone(kind: &Kind, object: &Value) -> Value {
    let mut details = Map::new();
    details.insert("name".to_owned(), json!(meta::text(object, "name")));
    if !kind.group.is_empty() {
        details.insert("group".to_owned(), json!(kind.group));
    }
    details.insert("kind".to_owned(), json!(kind.plural));
    details.insert("uid".to_owned(), json!(meta::text(object, "uid")));
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
