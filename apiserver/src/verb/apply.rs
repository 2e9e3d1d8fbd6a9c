//! Server-side apply: a PATCH that says what its manager wants to own. It makes the object if there is none.

use merge::fields::Path;
use serde_json::{Value, json};

use super::{
    Answer, Work,
    change::{Change, Face, Part},
    create, incoming,
    options::{FieldValidation, WriteOptions},
    scale, update,
};
use crate::{
    admission::Operation,
    error::{Cause, Error, Result},
    object::{
        meta,
        owned::{self, Endpoint, Hand},
    },
    registry::{Kind, ScalePaths, kind::APPLY_PATCH},
    wire::decode::{self, Decoded},
    world,
};

/// Beginning of the media types of an apply.
pub const APPLY: &str = "application/apply-patch+";

/// Whether a PATCH with this media type is an apply.
#[must_use]
pub fn is_apply(content_type: &str) -> bool {
    content_type == APPLY_PATCH
}

/// PATCH with an apply, on an object or its status.
pub async fn apply(work: &Work<'_>, part: Part, bytes: &[u8]) -> Result<Answer> {
    let kind = work.route.kind;
    let options = WriteOptions::parse_apply(work.context)?;
    let config = config(work, (&kind.api_version(), kind.kind), bytes, options.validation)?;
    loop {
        match change(work, part, &config, &options).await {
            Err(Error::NotFound { .. }) if part == Part::Main => match make(work, &config, &options).await {
                // Somebody else made it meanwhile, so it is a change.
                Err(Error::AlreadyExists { terminating: false, .. }) if !options.dry_run => {}
                made => return made,
            },
            changed => return changed,
        }
    }
}

/// PATCH with an apply on `/scale`: its manager wants to own the one number.
///
/// The parent is changed as by an apply of that one field; what a conflict names is the field as the Scale shows it.
pub async fn apply_scale(work: &Work<'_>, paths: ScalePaths, bytes: &[u8]) -> Result<Answer> {
    let kind = work.route.kind;
    let options = WriteOptions::parse_apply(work.context)?;
    let sent = config(work, ("autoscaling/v1", "Scale"), bytes, options.validation)?;
    let mut config = json!({"apiVersion": kind.api_version(), "kind": kind.kind});
    if let Some(asked) = sent.pointer("/spec/replicas") {
        scale::set_pointer(&mut config, paths.spec, asked.clone());
    }
    let now = world::rfc3339(work.world.now());
    let change = applying(Part::Main, Face::Scale(paths), &options);
    let changed = change
        .run(work, |live| {
            let hand = change.hand(&now);
            let fault = |error| refused(kind, &config, shown(&paths, error));
            let new = owned::apply(kind, Some(live), &config, hand, options.force).map_err(fault)?;
            // Checks the number and takes over the preconditions.
            let new = scale::into(&paths, &merged(&sent, scale::of(&paths, &new)), new)?;
            update::named(meta::text(live, "name"), new)
        })
        .await?;
    scale::answer(kind, &paths, &changed)
}

/// The Scale after the apply, with the version and uid that were sent as preconditions.
fn merged(sent: &Value, mut scale: Value) -> Value {
    for field in ["resourceVersion", "uid"] {
        meta::keep(&mut scale, field, sent);
    }
    scale
}

/// Conflicts about the number are about the field of the Scale.
fn shown(paths: &ScalePaths, error: merge::own::Error) -> merge::own::Error {
    let merge::own::Error::Conflicts(mut conflicts) = error else { return error };
    let of_parent: Vec<&str> = paths.spec.split('/').skip(1).collect();
    for conflict in conflicts.iter_mut().filter(|conflict| conflict.path == Path::of(&of_parent)) {
        conflict.path = Path::of(&["spec", "replicas"]);
        if !conflict.manager.api_version.is_empty() {
            "autoscaling/v1".clone_into(&mut conflict.manager.api_version);
        }
    }
    merge::own::Error::Conflicts(conflicts)
}

/// What is applied, as it was sent: what is left out is not wanted, so nothing is filled in.
fn config(work: &Work<'_>, of: (&str, &str), bytes: &[u8], validation: FieldValidation) -> Result<Value> {
    let fault = |why: &str| Error::bad_request(format!("error decoding YAML: {why}"));
    let Decoded { value, twice } = decode::decode(bytes, "application/yaml", &fault)?;
    if !value.is_object() && !value.is_null() {
        return Err(fault("the document is not an object"));
    }
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    if (text("apiVersion"), text("kind")) != of {
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        return Err(Error::bad_request(format!("invalid object type: {group}/{version}, Kind={}", text("kind"))));
    }
    if meta::get(&value, "managedFields").is_some() {
        return Err(Error::bad_request("metadata.managedFields must be nil"));
    }
    let twice = if validation == FieldValidation::Strict { twice.refusals() } else { twice.warnings() };
    incoming::report(twice.into_iter(), validation, &work.context.warnings).map_err(|all| {
        Error::bad_request(format!("error strict decoding YAML: error converting YAML to JSON: {all}"))
    })?;
    Ok(value)
}

async fn change(work: &Work<'_>, part: Part, config: &Value, options: &WriteOptions) -> Result<Answer> {
    let (kind, name) = (work.route.kind, work.name()?);
    let now = world::rfc3339(work.world.now());
    let change = applying(part, Face::Object, options);
    let changed = change
        .run(work, |live| {
            let hand = change.hand(&now);
            let new =
                owned::apply(kind, Some(live), config, hand, options.force).map_err(|e| refused(kind, config, e))?;
            let new = update::named(name, incoming::placed(new, work.route.namespace)?)?;
            update::require_version(kind, &new)?;
            Ok(new)
        })
        .await?;
    Ok(Answer::Object { created: false, kind_of: kind.plural.to_owned(), json: changed.json })
}

fn applying(part: Part, face: Face, options: &WriteOptions) -> Change {
    Change {
        part,
        face,
        options: options.clone(),
        options_kind: "PatchOptions",
        uid_is_field: true,
        is_owned: true,
        generation: None,
    }
}

/// Makes the object: the user needs the right to create for that, and there is nobody with a uid yet.
async fn make(work: &Work<'_>, config: &Value, options: &WriteOptions) -> Result<Answer> {
    let (kind, name) = (work.route.kind, work.name()?);
    let now = world::rfc3339(work.world.now());
    let hand = Hand { manager: &options.manager, endpoint: Endpoint::Main, now: &now };
    let object = owned::apply(kind, None, config, hand, options.force).map_err(|e| refused(kind, config, e))?;
    let uid = meta::text(&object, "uid");
    if !uid.is_empty() {
        let message =
            format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Error::Conflict { resource: kind.resource(), name: name.to_owned(), message, retry_after: None });
    }
    let object = incoming::placed(object, work.route.namespace)?;
    let mut object = update::named(name, object)?;
    incoming::default(kind, &mut object);
    // There is no version yet that it could be meant for.
    meta::remove(&mut object, "resourceVersion");
    if let Some(refused) = &work.context.refused_create {
        return Err(refused.clone());
    }
    let attributes = work.attributes(Operation::Create, kind, None, options.object("CreateOptions"));
    let json = create::store_beside(work, kind, object, attributes).await?;
    Ok(Answer::Object { created: true, kind_of: kind.plural.to_owned(), json })
}

fn refused(kind: &Kind, config: &Value, error: merge::own::Error) -> Error {
    match error {
        merge::own::Error::Conflicts(conflicts) => Error::ApplyConflict {
            message: merge::own::message(&conflicts),
            causes: conflicts.iter().map(cause).collect(),
        },
        merge::own::Error::Patch(faults) => {
            let of = |field: &str| Some(meta::text(config, field)).filter(|text| !text.is_empty());
            let (namespace, name) = (of("namespace").unwrap_or_default(), of("name").unwrap_or_default());
            let version = kind.api_version();
            Error::Unmergeable(format!(
                "failed to create typed patch object ({namespace}/{name}; {version}, Kind={}): {faults}",
                kind.kind
            ))
        }
        error @ merge::own::Error::Managed(_) => Error::Unmergeable(error.to_string()),
    }
}

fn cause(conflict: &merge::own::Conflict) -> Cause {
    Cause {
        reason: "FieldManagerConflict".to_owned(),
        message: format!("conflict with {}", conflict.manager),
        field: conflict.path.to_string(),
    }
}
