//! PUT: the object, its status, or a namespace's finalizers, replaced by what was sent.

use serde_json::Value;

use super::{
    Answer, Work,
    change::{Change, Face, Part},
    incoming,
    options::WriteOptions,
};
use crate::{
    error::{Cause, Error, Result},
    object::meta,
    registry::Kind,
};

/// PUT on an object, its `status` or its `finalize`.
pub async fn update(work: &Work<'_>, part: Part, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let options = WriteOptions::parse(work.context, "UpdateOptions")?;
    let kind = work.route.kind;
    let sent = incoming::object(work, kind, bytes, content_type, options.validation)?;
    let sent = named(work.name()?, sent)?;
    let change = Change {
        part,
        face: Face::Object,
        options,
        options_kind: "UpdateOptions",
        uid_is_field: false,
        is_owned: false,
        generation: None,
    };
    let changed = change
        .run(work, |_live| {
            require_version(kind, &sent)?;
            Ok(sent.clone())
        })
        .await?;
    Ok(Answer::Object { created: false, kind_of: kind.plural.to_owned(), json: changed.json })
}

/// The name of the path counts; the object must repeat it.
pub fn named(name: &str, object: Value) -> Result<Value> {
    match meta::text(&object, "name") {
        "" => Err(Error::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given if given == name => Ok(object),
        given => Err(Error::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
    }
}

/// A change must say which version it is of; a patch says so unless it takes the version away.
pub fn require_version(kind: &Kind, object: &Value) -> Result<()> {
    if !kind.strategy.needs_version() || !matches!(meta::text(object, "resourceVersion"), "" | "0") {
        return Ok(());
    }
    let cause = Cause::invalid("metadata.resourceVersion", &"0", "must be specified for an update");
    let name = meta::text(object, "name").to_owned();
    // As Kubernetes words it: the kind of this one refusal is the plural.
    Err(Error::Invalid { kind: kind.resource(), name, causes: vec![cause] })
}
