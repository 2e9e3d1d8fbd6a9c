//! PATCH: JSON merge patch and JSON patch of an object, its status or its scale.
//!
//! Strategic merge patch is refused, as for custom resources: kubectl and the garbage collector fall back on 415.
//! Server-side apply is not served yet and is refused the same way.

use serde_json::Value;

use super::{
    Answer, Work,
    change::{Change, Face, Part},
    incoming,
    options::WriteOptions,
    scale, update,
};
use crate::{
    error::{Error, Result},
    object::meta,
    registry::ScalePaths,
    wire::decode::{self, Decoded},
};

const TYPES: [&str; 2] = ["application/json-patch+json", "application/merge-patch+json"];

/// A patch, decoded once and applied to every live object that comes along.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 7396, and the keys it holds twice.
    Merge(Value, Vec<String>),
    /// RFC 6902.
    Json(Value),
}

impl Patch {
    /// Decodes a patch by its media type.
    pub fn parse(bytes: &[u8], content_type: &str) -> Result<Self> {
        let fault = |why: &str| Error::bad_request(format!("error decoding patch: {why}"));
        match content_type {
            "application/merge-patch+json" => {
                let Decoded { value, duplicates } = decode::json(bytes, &fault)?;
                if !value.is_object() {
                    return Err(fault("a merge patch is an object"));
                }
                Ok(Self::Merge(value, duplicates))
            }
            "application/json-patch+json" => Ok(Self::Json(decode::json(bytes, &fault)?.value)),
            _ => Err(Error::UnsupportedMediaType(TYPES.to_vec())),
        }
    }

    /// Applies the patch.
    pub fn apply(&self, object: &mut Value) -> Result<()> {
        match self {
            Self::Merge(patch, _) => {
                merge::merge_patch(object, patch);
                Ok(())
            }
            Self::Json(patch) => merge::json_patch(object, patch).map_err(|error| match error {
                merge::PatchError::Malformed(_) => Error::bad_request(error.to_string()),
                merge::PatchError::TooManyOperations(count) => Error::TooLarge(format!(
                    "The allowed maximum operations in a JSON patch is {}, got {count}",
                    merge::JSON_PATCH_OPERATIONS_MAX
                )),
                merge::PatchError::Failed { .. } => Error::Unprocessable(format!(
                    "the server rejected our request due to an error in our request: {error}"
                )),
            }),
        }
    }

    fn duplicates(&self) -> &[String] {
        match self {
            Self::Merge(_, duplicates) => duplicates,
            Self::Json(_) => &[],
        }
    }
}

/// PATCH on an object or its `status`.
pub async fn patch(work: &Work<'_>, part: Part, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let patch = Patch::parse(bytes, content_type)?;
    let options = WriteOptions::parse(work.context, "PatchOptions")?;
    let kind = work.route.kind;
    let name = work.name()?;
    let validation = options.validation;
    let change = Change { part, face: Face::Object, options, options_kind: "PatchOptions", uid_is_field: true };
    let changed = change
        .run(work, |live| {
            let mut new = live.clone();
            patch.apply(&mut new)?;
            let decoded = Decoded { value: new, duplicates: patch.duplicates().to_vec() };
            let new = incoming::typed(kind, decoded, validation, &work.context.warnings)?;
            let new = incoming::placed(kind, new, work.route.namespace)?;
            update::named(name, new)
        })
        .await?;
    Ok(Answer::Object { created: false, kind_of: kind.plural.to_owned(), json: changed.json })
}

/// PATCH on `scale`.
pub async fn patch_scale(work: &Work<'_>, paths: ScalePaths, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let patch = Patch::parse(bytes, content_type)?;
    let options = WriteOptions::parse(work.context, "PatchOptions")?;
    let face = Face::Scale(paths);
    let change = Change { part: Part::Main, face, options, options_kind: "PatchOptions", uid_is_field: true };
    let changed = change
        .run(work, |live| {
            let mut shown = scale::of(&paths, live);
            patch.apply(&mut shown)?;
            let shown = update::named(meta::text(live, "name"), shown)?;
            scale::into(&paths, &shown, live.clone())
        })
        .await?;
    scale::answer(&paths, &changed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn applied(content_type: &str, patch: &Value, to: Value) -> Result<Value> {
        let mut object = to;
        Patch::parse(patch.to_string().as_bytes(), content_type)?.apply(&mut object)?;
        Ok(object)
    }

    #[test]
    fn apply_and_strategic_merge_are_refused_with_the_list_of_what_is_read() {
        for content_type in [
            "application/apply-patch+yaml",
            "application/apply-patch+cbor",
            "application/strategic-merge-patch+json",
            "application/json",
            "",
        ] {
            let error = applied(content_type, &json!({}), json!({})).unwrap_err();
            assert_eq!(error, Error::UnsupportedMediaType(TYPES.to_vec()), "{content_type}");
        }
    }

    #[test]
    fn both_kinds_of_patch_change_the_object() {
        let object = json!({"a": {"b": 1, "c": 2}});
        let merge = json!({"a": {"b": null, "d": 3}});
        assert_eq!(applied(TYPES[1], &merge, object.clone()), Ok(json!({"a": {"c": 2, "d": 3}})));
        let json = json!([{"op": "replace", "path": "/a/b", "value": 9}, {"op": "test", "path": "/a/c", "value": 2}]);
        assert_eq!(applied(TYPES[0], &json, object), Ok(json!({"a": {"b": 9, "c": 2}})));
    }

    #[test]
    fn a_broken_patch_is_a_bad_request_and_one_that_does_not_apply_is_unprocessable() {
        let json = |patch: Value| applied(TYPES[0], &patch, json!({"a": 1})).unwrap_err();
        assert!(matches!(json(json!([{"op": "jump"}])), Error::BadRequest(_)));
        assert!(matches!(json(json!([{"op": "test", "path": "/a", "value": 2}])), Error::Unprocessable(_)));
        assert!(matches!(json(json!([{"op": "remove", "path": "/b"}])), Error::Unprocessable(_)));
        let many = vec![json!({"op": "test", "path": "/a", "value": 1}); 10_001];
        assert!(matches!(json(Value::Array(many)), Error::TooLarge(_)));
        assert!(matches!(applied(TYPES[1], &json!([]), json!({})), Err(Error::BadRequest(_))));
    }
}
