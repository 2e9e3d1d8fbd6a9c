//! POST on an action: checks against the live parent, then a durable record. The server writes the record; only the
//! controller acts on it.

use serde_json::Value;

use super::{Answer, Work, beside, create, get, incoming, options::WriteOptions};
use crate::{
    admission::{GroupVersion, Operation},
    error::{Error, Result},
    object::meta,
    registry::Kind,
    resource::{Action, redis_action},
};

/// POST on a create-only subresource.
pub async fn action(work: &Work<'_>, action: &dyn Action, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let options = WriteOptions::parse(work.context, "CreateOptions")?;
    // Through whichever version it is asked for, an action is about the object as it is kept.
    let parent_kind = work.registry.resource(work.route.kind.group, work.route.kind.plural);
    let parent_kind = parent_kind.unwrap_or(work.route.kind);
    let kind = record_kind(work, parent_kind, action)?;
    let body = incoming::body_of_action(work, kind, bytes, content_type, options.validation)?;
    let parent = work.storage.live(parent_kind, &work.key()?).await?;
    check_parent(parent_kind, &parent.value, parent.object.revision().0, &body)?;
    let mut record = action.build(&parent.value, without_preconditions(body))?;
    incoming::default(kind, &mut record);
    let judge = |record: &Value| {
        // What is wrong with the order itself comes before what is only wrong now, in the words of a plain create.
        check_faults(kind, record)?;
        // Asked again in turn, before the write: admission may take long, and nobody waits for that of others.
        action.check(&parent.value, record, &others(work, kind, action)?)
    };
    let record = admit_action(work, parent_kind, kind, record, &options, judge).await?;
    let mut attributes = work.attributes(Operation::Create, kind, None, options.object("CreateOptions"));
    attributes.subresource = None;
    let record = create::owned_by(work, kind, record, &options.manager);
    let json = create::admit_and_store(work, kind, record, attributes).await?;
    if !options.dry_run {
        let own = get::value(kind, &json)?;
        let check = |others: &[Value]| action.check(&parent.value, &own, others);
        beside::give_way(work, kind, &own, || others(work, kind, action), check).await?;
    }
    Ok(Answer::Object { created: true, kind_of: kind.plural.to_owned(), json })
}

fn record_kind<'a>(work: &Work<'a>, parent: &Kind, action: &dyn Action) -> Result<&'a Kind> {
    let mut kinds = work.registry.hubs();
    kinds
        .find(|kind| kind.kind == action.kind() && kind.group == parent.group)
        .ok_or_else(|| Error::internal(format!("the registry has no kind {}", action.kind())))
}

/// A parent on its way out starts nothing; uid and version in the body's metadata are preconditions on the parent.
fn check_parent(kind: &Kind, parent: &Value, revision: u64, body: &Value) -> Result<()> {
    let name = meta::text(parent, "name");
    let conflict = |message: String| {
        Err(Error::Conflict { resource: kind.resource(), name: name.to_owned(), message, retry_after: None })
    };
    if meta::is_terminating(parent) {
        return conflict(format!("the {} is being deleted", kind.kind));
    }
    let have = revision.to_string();
    for (what, field, have) in
        [("UID", "uid", meta::text(parent, "uid")), ("ResourceVersion", "resourceVersion", &have)]
    {
        let wanted = meta::text(body, field);
        if !wanted.is_empty() && wanted != have {
            return conflict(format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {have}"
            ));
        }
    }
    Ok(())
}

fn without_preconditions(mut body: Value) -> Value {
    meta::remove(&mut body, "uid");
    meta::remove(&mut body, "resourceVersion");
    body
}

/// The faults that a plain create of the record would be refused for.
fn check_faults(kind: &Kind, record: &Value) -> Result<()> {
    let mut causes = kind.shape.faults(record);
    if causes.is_empty() {
        causes = kind.strategy.faults(record);
    }
    if causes.is_empty() { Ok(()) } else { Err(redis_action::refused(kind.kind, record, causes)) }
}

/// Every record of this kind for the parent.
fn others(work: &Work<'_>, kind: &Kind, action: &dyn Action) -> Result<Vec<Value>> {
    beside::having(work, kind, action.parent_field(), work.name()?)
}

/// Admission of the call itself: CREATE on the parent's resource with this subresource and the record as object. What
/// mutating admission leaves is judged before anybody else sees it.
async fn admit_action(
    work: &Work<'_>,
    parent: &Kind,
    kind: &Kind,
    record: Value,
    options: &WriteOptions,
    judge: impl Fn(&Value) -> Result<()>,
) -> Result<Value> {
    let shown =
        GroupVersion { group: kind.group.to_owned(), version: kind.version.to_owned(), name: kind.kind.to_owned() };
    let mut attributes = work.attributes(Operation::Create, parent, Some(shown), options.object("CreateOptions"));
    let mut record = work.admission.mutate(&attributes, record).await?;
    incoming::settle(kind, &mut record)?;
    judge(&record)?;
    attributes.object = Some(std::sync::Arc::new(record.clone()));
    work.admission.validate(&attributes).await?;
    Ok(record)
}
