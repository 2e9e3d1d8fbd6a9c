//! Objects of a kind that get in each other's way: whoever makes one finds none in his.
//!
//! On one server they are made one after the other. Another server on the same store may make one at the same moment, which neither
//! could know: each looks again after its write, and whoever sees one that was there before his takes his own back. In doubt (the
//! other has gone on meanwhile) both do: twice nothing is safe, two at once are not.

use serde_json::Value;
use store::{
    Revision, Write,
    cache::{Filter, Query},
};
use tokio::sync::MutexGuard;

use super::{Work, get};
use crate::{
    error::Result,
    object::meta,
    registry::Kind,
    storage::{self, Storage, WriteError},
};

/// Held while such an object is checked the last time and written, and while nobody else is asked; nothing for other kinds.
pub(super) async fn turn<'a>(work: &Work<'a>, kind: &Kind) -> Option<MutexGuard<'a, ()>> {
    match kind.strategy.exclusive_by() {
        Some(_) => Some(work.actions.lock().await),
        None => None,
    }
}

/// Refuses a new object while another one is in its way.
pub(super) async fn check(work: &Work<'_>, kind: &Kind, object: &Value) -> Result<()> {
    if kind.strategy.exclusive_by().is_none() {
        return Ok(());
    }
    work.storage.fresh().await?;
    let mut others = fellows(work, kind, object)?;
    // Of one that has its name the store says that it exists already.
    others.retain(|other| meta::text(other, "name") != meta::text(object, "name"));
    kind.strategy.check_beside(object, &others)
}

/// After the write: takes the object back if another one was there before.
pub(super) async fn look_again(work: &Work<'_>, kind: &Kind, own: &Value) -> Result<()> {
    give_way(work, kind, own, || fellows(work, kind, own), |others| kind.strategy.check_beside(own, others)).await
}

/// All objects of this kind that this one could meet.
fn fellows(work: &Work<'_>, kind: &Kind, object: &Value) -> Result<Vec<Value>> {
    let Some(field) = kind.strategy.exclusive_by() else { return Ok(Vec::new()) };
    let value = object.pointer(&format!("/{}", field.replace('.', "/"))).and_then(Value::as_str).unwrap_or_default();
    having(work, kind, field, value)
}

/// All objects of this kind whose selectable field has this value.
pub(super) fn having(work: &Work<'_>, kind: &Kind, field: &'static str, value: &str) -> Result<Vec<Value>> {
    let value = value.to_owned();
    let filter = Filter::of(work.route.namespace)
        .selecting(move |object| object.header().fields.get(field) == Some(value.as_str()));
    let query = Query { filter, ..Query::default() };
    let listed = work.storage.resource(kind)?.list(&query).map_err(storage::unavailable)?;
    listed.items.iter().map(|object| get::value(kind, object.as_bytes())).collect()
}

/// Takes an object that was just written back if `check` refuses it beside those of the others that were there before.
pub(super) async fn give_way(
    work: &Work<'_>,
    kind: &Kind,
    own: &Value,
    others: impl Fn() -> Result<Vec<Value>>,
    check: impl Fn(&[Value]) -> Result<()>,
) -> Result<()> {
    work.storage.fresh().await?;
    let mut others = others()?;
    others.retain(|other| meta::text(other, "uid") != meta::text(own, "uid") && !is_later(other, own));
    let Err(refusal) = check(&others) else { return Ok(()) };
    let key = Storage::key(kind, work.route.namespace, meta::text(own, "name"))?;
    match work.storage.write(Write::delete(key, Revision(revision(own)))).await {
        // Whoever was faster has deleted it, or works on it and will find the other one.
        Ok(_) | Err(WriteError::Refused(_)) => Err(refusal),
        Err(WriteError::Failed(error)) => Err(error),
    }
}

fn revision(object: &Value) -> u64 {
    meta::text(object, "resourceVersion").parse().unwrap_or(0)
}

/// Whether a record was certainly made after ours: nobody has touched it since, and its version is higher.
fn is_later(other: &Value, own: &Value) -> bool {
    let phase = |record: &Value| record.pointer("/status/phase").cloned();
    revision(other) > revision(own) && phase(other) == phase(own)
}
