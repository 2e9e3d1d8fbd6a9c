//! A body → an object of the kind the path asks for: type, namespace, unknown and duplicate fields.

use serde_json::Value;

use super::{Work, options::FieldValidation};
use crate::{
    error::{Cause, Error, Qualified, Result},
    object::meta,
    registry::Kind,
    request::Warnings,
    wire::{
        decode::{self, Decoded, Twice},
        protobuf,
    },
};

/// Decodes an object and checks that it is what the path says.
pub fn object(
    work: &Work<'_>,
    kind: &Kind,
    bytes: &[u8],
    content_type: &str,
    validation: FieldValidation,
) -> Result<Value> {
    let decoded = decoded(kind, bytes, content_type)?;
    if !kind.is_built_in() {
        check_type(kind, &decoded.value, bytes)?;
    }
    checked(work, kind, decoded, validation)
}

/// The same for the body of an action, which need not say what it is.
pub fn body_of_action(
    work: &Work<'_>,
    kind: &Kind,
    bytes: &[u8],
    content_type: &str,
    validation: FieldValidation,
) -> Result<Value> {
    checked(work, kind, decoded(kind, bytes, content_type)?, validation)
}

/// What a patch makes of the live object. `odd` is what was found odd in the patch itself.
pub fn patched(
    work: &Work<'_>,
    kind: &Kind,
    mut object: Value,
    odd: &[String],
    validation: FieldValidation,
) -> Result<Value> {
    let bad = |object: String, why: &str| Error::BadPatch { object, why: why.to_owned() };
    if !kind.is_built_in() {
        check_patched_type(kind, &object, &|why| bad(object.to_string(), why))?;
    }
    let fault = meta::decode_fault(&object).map(|why| bad(object.to_string(), &why));
    // Only a strict refusal shows the object as it was, with what is unknown in it.
    let text = if validation == FieldValidation::Strict { object.to_string() } else { String::new() };
    fill_type(kind, &mut object)?;
    fault.map_or(Ok(()), Err)?;
    let unknown = unknown(kind, &mut object);
    report(odd.iter().cloned().chain(unknown), validation, &work.context.warnings)
        .map_err(|all| bad(text, &format!("strict decoding error: {all}")))?;
    Ok(object)
}

fn decoded(kind: &Kind, bytes: &[u8], content_type: &str) -> Result<Decoded> {
    let message = kind.protobuf.filter(|_| content_type == protobuf::MEDIA_TYPE);
    let Some(message) = message else {
        return decode::decode(bytes, content_type, &|why| unread(kind, bytes, content_type, why));
    };
    let value = protobuf::decode(bytes, message).map_err(|why| cannot_be(kind, &why))?;
    Ok(Decoded { value, twice: Twice::default() })
}

fn checked(work: &Work<'_>, kind: &Kind, decoded: Decoded, validation: FieldValidation) -> Result<Value> {
    let Decoded { value: mut object, twice } = decoded;
    set_type(kind, &mut object)?;
    let twice = if validation == FieldValidation::Strict { twice.refusals() } else { twice.warnings() };
    let unknown = unknown(kind, &mut object);
    report(twice.into_iter().chain(unknown), validation, &work.context.warnings)
        .map_err(|all| cannot_be(kind, &format!("strict decoding error: {all}")))?;
    work.context.record.object(&object, |object| default(kind, object));
    placed(object, work.route.namespace)
}

/// `K in version "V" cannot be handled as a K: …`
#[must_use]
pub fn cannot_be(kind: &Kind, why: &str) -> Error {
    Error::bad_request(format!("{0} in version {1:?} cannot be handled as a {0}: {why}", kind.kind, kind.version))
}

/// A body that cannot be read at all.
fn unread(kind: &Kind, bytes: &[u8], content_type: &str, why: &str) -> Error {
    match content_type {
        "application/yaml" => unrecognized(kind, bytes, &format!("yaml: {why}")),
        _json => unrecognized(kind, bytes, &format!("couldn't get version/kind; json parse error: {why}")),
    }
}

/// A body that says not what it is.
fn unrecognized(kind: &Kind, bytes: &[u8], why: &str) -> Error {
    let summary = summary(bytes);
    Error::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({summary})",
        kind.kind
    ))
}

/// The beginning of a body: as text if it looks like JSON, else in hexadecimal digits.
fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    let shown = bytes.get(..SHOWN).unwrap_or(bytes);
    let shown = match shown.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if bytes.len() > SHOWN { format!("{shown} ...") } else { shown }
}

/// A custom resource must say what it is, and be what the path says.
fn check_type(kind: &Kind, object: &Value, bytes: &[u8]) -> Result<()> {
    let refused = |why: &str| Err(unrecognized(kind, bytes, why));
    if !object.is_object() && !object.is_null() {
        return refused("couldn't get version/kind; json parse error: the document is not an object");
    }
    let (version, given) = match (type_text(object, "apiVersion"), type_text(object, "kind")) {
        (Some(version), Some(given)) => (version, given),
        (None, _) | (_, None) => return refused("couldn't get version/kind; json parse error: a text is expected"),
    };
    if given.is_empty() {
        return refused(&format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(bytes)));
    }
    if version.matches('/').count() > 1 {
        return refused(&format!("unexpected GroupVersion string: {version}"));
    }
    let expected = kind.api_version();
    if version != expected {
        let text =
            format!("the API version in the data ({version}) does not match the expected API version ({expected})");
        return Err(Error::bad_request(text));
    }
    check_kind(kind, object, given)
}

fn check_patched_type(kind: &Kind, object: &Value, bad: &dyn Fn(&str) -> Error) -> Result<()> {
    let (Some(version), Some(given)) = (type_text(object, "apiVersion"), type_text(object, "kind")) else {
        return Err(bad("couldn't get version/kind; json parse error: a text is expected"));
    };
    if given.is_empty() {
        return Err(bad(&format!("Object 'Kind' is missing in '{object}'")));
    }
    if version.is_empty() {
        return Err(bad("Object 'apiVersion' is missing in 'object has no apiVersion field'"));
    }
    let expected = kind.api_version();
    if version != expected {
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let cause = Cause::invalid("apiVersion", &meta::quoted(version), &format!("must be {expected}"));
        let name = meta::text(object, "name").to_owned();
        return Err(Error::Invalid { kind: Qualified::new(group, given), name, causes: vec![cause] });
    }
    check_kind(kind, object, given)
}

fn check_kind(kind: &Kind, object: &Value, given: &str) -> Result<()> {
    if given == kind.kind {
        return Ok(());
    }
    let cause = Cause::invalid("kind", &meta::quoted(given), &format!("must be {}", kind.kind));
    let name = meta::text(object, "name").to_owned();
    Err(Error::Invalid { kind: Qualified::new(kind.group, given), name, causes: vec![cause] })
}

/// `apiVersion` or `kind`; empty if absent, `None` if it is no text.
fn type_text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get(field).filter(|value| !value.is_null()).map_or(Some(""), Value::as_str)
}

/// apiVersion and kind must agree with the path; absent ones are filled in.
fn set_type(kind: &Kind, object: &mut Value) -> Result<()> {
    fill_type(kind, object)?;
    match meta::decode_fault(object) {
        Some(why) => Err(cannot_be(kind, &why)),
        None => Ok(()),
    }
}

fn fill_type(kind: &Kind, object: &mut Value) -> Result<()> {
    let expected = kind.api_version();
    let map = object.as_object_mut().ok_or_else(|| cannot_be(kind, "the document is not an object"))?;
    for (field, expected) in [("apiVersion", expected.as_str()), ("kind", kind.kind)] {
        match map.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::String(given)) if given.is_empty() || given == expected => {}
            Some(given) => {
                let given = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
                let what = if field == "kind" { "kind" } else { "API version" };
                return Err(Error::bad_request(format!(
                    "the {what} in the data ({given}) does not match the expected {what} ({expected})"
                )));
            }
        }
        map.insert(field.to_owned(), expected.into());
    }
    Ok(())
}

/// The namespace of the path counts; the body may repeat it.
pub fn placed(mut object: Value, namespace: Option<&str>) -> Result<Value> {
    match (namespace, meta::text(&object, "namespace")) {
        (None, _) => meta::remove(&mut object, "namespace"),
        (Some(namespace), "") => meta::set(&mut object, "namespace", namespace),
        (Some(namespace), given) if given == namespace => {}
        (Some(_), _) => {
            return Err(Error::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(object)
}

/// Takes unknown fields away and tells them.
fn unknown(kind: &Kind, object: &mut Value) -> Vec<String> {
    kind.shape.prune(object).iter().map(|path| format!("unknown field {path:?}")).collect()
}

/// Warns of what is odd, or gives all of it as the text of a refusal.
pub fn report(
    odd: impl Iterator<Item = String>,
    validation: FieldValidation,
    warnings: &Warnings,
) -> Result<(), String> {
    match validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            odd.for_each(|text| warnings.add(text));
            Ok(())
        }
        FieldValidation::Strict => {
            let all: Vec<String> = odd.collect();
            if all.is_empty() { Ok(()) } else { Err(all.join(", ")) }
        }
    }
}

/// After admission: what a webhook added may be unknown or lack defaults, but its type must still be right.
pub fn settle(kind: &Kind, object: &mut Value) -> Result<()> {
    if !object.is_object() {
        return Err(Error::internal("a mutating webhook made the object something else than an object"));
    }
    set_type(kind, object)?;
    kind.shape.prune(object);
    default(kind, object);
    Ok(())
}

/// Defaults of the schema, before them those that say otherwise, and then those that depend on other fields.
pub fn default(kind: &Kind, object: &mut Value) {
    meta::tidy(object);
    kind.strategy.before_default(object);
    kind.shape.default(object);
    kind.strategy.default(object);
}
