//! A body → an object of the kind the path asks for: type, namespace, unknown and duplicate fields.

use serde_json::Value;

use super::{Work, options::FieldValidation};
use crate::{
    error::{Error, Result},
    object::meta,
    registry::Kind,
    request::Warnings,
    wire::{
        decode::{self, Decoded},
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
    let decoded = match kind.protobuf.filter(|_| content_type == protobuf::MEDIA_TYPE) {
        Some(message) => {
            let value = protobuf::decode(bytes, message).map_err(|why| cannot_be(kind, &why))?;
            Decoded { value, duplicates: Vec::new() }
        }
        None => decode::decode(bytes, content_type, &|why| cannot_be(kind, why))?,
    };
    typed(kind, decoded, validation, &work.context.warnings).and_then(|object| placed(object, work.route.namespace))
}

/// Checks type and fields of a decoded object.
pub fn typed(kind: &Kind, decoded: Decoded, validation: FieldValidation, warnings: &Warnings) -> Result<Value> {
    let Decoded { value: mut object, duplicates } = decoded;
    set_type(kind, &mut object)?;
    let unknown = kind.shape.prune(&mut object);
    report(kind, &unknown, &duplicates, validation, warnings)?;
    Ok(object)
}

/// `K in version "V" cannot be handled as a K: …`
#[must_use]
pub fn cannot_be(kind: &Kind, why: &str) -> Error {
    Error::bad_request(format!("{0} in version {1:?} cannot be handled as a {0}: {why}", kind.kind, kind.version))
}

/// apiVersion and kind must agree with the path; absent ones are filled in.
fn set_type(kind: &Kind, object: &mut Value) -> Result<()> {
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
    match meta::decode_fault(object) {
        Some(why) => Err(cannot_be(kind, &why)),
        None => Ok(()),
    }
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

fn report(
    kind: &Kind,
    unknown: &[String],
    duplicates: &[String],
    validation: FieldValidation,
    warnings: &Warnings,
) -> Result<()> {
    let all = unknown.iter().map(|path| format!("unknown field {path:?}"));
    let all: Vec<String> = all.chain(duplicates.iter().map(|path| format!("duplicate field {path:?}"))).collect();
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => all.into_iter().for_each(|text| warnings.add(text)),
        FieldValidation::Strict if all.is_empty() => {}
        FieldValidation::Strict => {
            return Err(cannot_be(kind, &format!("strict decoding error: {}", all.join(", "))));
        }
    }
    Ok(())
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

/// Defaults of the schema, then those that depend on other fields.
pub fn default(kind: &Kind, object: &mut Value) {
    meta::tidy(object);
    kind.shape.default(object);
    kind.strategy.default(object);
}
