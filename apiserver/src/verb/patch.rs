//! PATCH: JSON merge patch, JSON patch and, for built-in kinds, strategic merge patch of an object, its status or its
//! scale.
//!
//! Strategic merge patch of our own kinds is refused, as for custom resources: clients fall back on 415. Server-side
//! apply is a verb of its own, see `apply`.

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
    registry::{
        Kind, ScalePaths,
        kind::{JSON_PATCH as JSON, MERGE_PATCH as MERGE, STRATEGIC_MERGE_PATCH as STRATEGIC},
    },
    wire::decode::{self, Decoded},
};

/// A patch, decoded once and applied to every live object that comes along, and what was found odd in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    form: Form,
    odd: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Form {
    /// RFC 7396.
    Merge(Value),
    /// Kubernetes' own.
    Strategic(Value),
    /// RFC 6902.
    Json(Value),
}

impl Patch {
    /// Decodes a patch by its media type, if the kind reads it.
    pub fn parse(kind: &Kind, bytes: &[u8], content_type: &str) -> Result<Self> {
        let fault = |why: &str| Error::bad_request(format!("error decoding patch: {why}"));
        let object = || {
            let Decoded { value, twice } = decode::json(bytes, &fault)?;
            match value {
                Value::Object(_) => Ok((value, twice.warnings())),
                Value::Null => Err(Error::bad_request("Invalid JSON Patch")),
                _ => Err(fault("a merge patch is an object")),
            }
        };
        match content_type {
            MERGE => object().map(|(patch, odd)| Self { form: Form::Merge(patch), odd }),
            STRATEGIC if kind.strategic => object().map(|(patch, odd)| Self { form: Form::Strategic(patch), odd }),
            JSON => {
                let Decoded { value, twice } = decode::json(bytes, &fault)?;
                let odd = twice.of("json patch").warnings().into_iter().chain(unknown_members(&value)).collect();
                Ok(Self { form: Form::Json(value), odd })
            }
            _ => Err(Error::UnsupportedMediaType(kind.patch_types().to_vec())),
        }
    }

    /// Applies the patch.
    pub fn apply(&self, object: &mut Value) -> Result<()> {
        match &self.form {
            Form::Merge(patch) => {
                merge::merge_patch(object, patch);
                Ok(())
            }
            Form::Strategic(patch) => merge::strategic_merge_patch(object, patch).map_err(refused),
            Form::Json(patch) => merge::json_patch(object, patch).map_err(refused),
        }
    }
}

/// Members of operations that say nothing.
fn unknown_members(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().into_iter().flatten().enumerate();
    let members = operations.flat_map(|(at, operation)| {
        let names = operation.as_object().into_iter().flat_map(serde_json::Map::keys);
        names.map(move |name| (at, name))
    });
    members
        .filter(|(_, name)| !matches!(name.as_str(), "op" | "path" | "from" | "value"))
        .map(|(at, name)| format!("json patch unknown field \"[{at}].{name}\""))
        .collect()
}

fn refused(error: merge::PatchError) -> Error {
    match error {
        merge::PatchError::Malformed(why) => Error::bad_request(format!("error decoding patch: {why}")),
        merge::PatchError::TooManyOperations(count) => Error::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {}, got {count}",
            merge::JSON_PATCH_OPERATIONS_MAX
        )),
        merge::PatchError::TooManyItems { .. } => Error::TooLarge(error.to_string()),
        merge::PatchError::Failed { .. } => {
            // What failed is not told, as in Kubernetes.
            Error::Unprocessable("the server rejected our request due to an error in our request".to_owned())
        }
    }
}

/// PATCH on an object or its `status`.
pub async fn patch(work: &Work<'_>, part: Part, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let kind = work.route.kind;
    let patch = Patch::parse(kind, bytes, content_type)?;
    let options = WriteOptions::parse(work.context, "PatchOptions")?;
    let name = work.name()?;
    let validation = options.validation;
    let change = Change {
        part,
        face: Face::Object,
        options,
        options_kind: "PatchOptions",
        uid_is_field: true,
        is_owned: false,
        generation: None,
    };
    let changed = change
        .run(work, |live| {
            let mut new = live.clone();
            patch.apply(&mut new)?;
            let new = incoming::patched(work, kind, new, &patch.odd, validation)?;
            let new = update::named(name, incoming::placed(new, work.route.namespace)?)?;
            update::require_version(kind, &new)?;
            Ok(new)
        })
        .await?;
    Ok(Answer::Object { created: false, kind_of: kind.plural.to_owned(), json: changed.json })
}

/// PATCH on `scale`.
pub async fn patch_scale(work: &Work<'_>, paths: ScalePaths, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let patch = Patch::parse(work.route.kind, bytes, content_type)?;
    let options = WriteOptions::parse(work.context, "PatchOptions")?;
    let (face, validation) = (Face::Scale(paths), options.validation);
    let change = Change {
        part: Part::Main,
        face,
        options,
        options_kind: "PatchOptions",
        uid_is_field: true,
        is_owned: false,
        generation: None,
    };
    let changed = change
        .run(work, |live| {
            let mut shown = scale::of(&paths, live);
            patch.apply(&mut shown)?;
            let shown = scale::patched(shown, &patch.odd, validation, &work.context.warnings)?;
            let shown = update::named(meta::text(live, "name"), shown)?;
            scale::into(&paths, &shown, live.clone())
        })
        .await?;
    scale::answer(work.route.kind, &paths, &changed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::registry::{self, kind::APPLY_PATCH as APPLY};
    use serde_json::json;

    fn applied(plural: &str, content_type: &str, patch: &Value, to: Value) -> Result<Value> {
        let registry = registry::redis::registry().unwrap().and(registry::host::registry().unwrap());
        let kind = registry.kinds().find(|kind| kind.plural == plural).unwrap();
        let mut object = to;
        Patch::parse(kind, patch.to_string().as_bytes(), content_type)?.apply(&mut object)?;
        Ok(object)
    }

    fn cluster(content_type: &str, patch: &Value, to: Value) -> Result<Value> {
        applied("redisclusters", content_type, patch, to)
    }

    #[test]
    fn what_a_kind_does_not_read_is_refused_with_the_list_of_what_it_does() {
        for content_type in [STRATEGIC, "application/json", ""] {
            let error = cluster(content_type, &json!({}), json!({})).unwrap_err();
            assert_eq!(error, Error::UnsupportedMediaType(vec![JSON, MERGE, APPLY]), "{content_type}");
        }
        let error = applied("secrets", "application/json", &json!({}), json!({})).unwrap_err();
        assert_eq!(error, Error::UnsupportedMediaType(vec![JSON, MERGE, STRATEGIC, APPLY]));
    }

    #[test]
    fn built_in_kinds_read_strategic_merge_patches() {
        let live = json!({"spec": {"ports": [{"port": 80, "name": "a"}]}});
        let patch = json!({"spec": {"ports": [{"port": 81}]}});
        let expected = json!({"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81}]}});
        assert_eq!(applied("services", STRATEGIC, &patch, live), Ok(expected));
        let broken = json!({"spec": {"$patch": "jump"}});
        assert!(matches!(applied("services", STRATEGIC, &broken, json!({})), Err(Error::BadRequest(_))));
    }

    #[test]
    fn both_kinds_of_patch_change_the_object() {
        let object = json!({"a": {"b": 1, "c": 2}});
        let merge = json!({"a": {"b": null, "d": 3}});
        assert_eq!(cluster(MERGE, &merge, object.clone()), Ok(json!({"a": {"c": 2, "d": 3}})));
        let json = json!([{"op": "replace", "path": "/a/b", "value": 9}, {"op": "test", "path": "/a/c", "value": 2}]);
        assert_eq!(cluster(JSON, &json, object), Ok(json!({"a": {"b": 9, "c": 2}})));
    }

    #[test]
    fn what_is_odd_in_a_patch_is_told() {
        let registry = registry::redis::registry().unwrap();
        let kind = registry.kinds().find(|kind| kind.plural == "redisclusters").unwrap();
        let odd = |content_type: &str, text: &str| Patch::parse(kind, text.as_bytes(), content_type).unwrap().odd;
        assert_eq!(
            odd(MERGE, r#"{"b":1,"a":{"c":1,"c":2},"b":2}"#),
            [r#"duplicate field "a.c""#, r#"duplicate field "b""#]
        );
        assert_eq!(
            odd(JSON, r#"[{"op":"test","path":"/a","value":1,"value":2,"extra":3}]"#),
            [r#"json patch duplicate field "[0].value""#, r#"json patch unknown field "[0].extra""#]
        );
    }

    #[test]
    fn a_broken_patch_is_a_bad_request_and_one_that_does_not_apply_is_unprocessable() {
        let json = |patch: Value| cluster(JSON, &patch, json!({"a": 1})).unwrap_err();
        for malformed in [json!({}), json!([1]), json!([{"op": 7}]), json!([{"op": "add", "path": []}])] {
            assert!(matches!(json(malformed), Error::BadRequest(_)));
        }
        assert!(matches!(json(json!([{"op": "jump", "path": "/a"}])), Error::Unprocessable(_)));
        assert!(matches!(json(json!([{"op": "add"}])), Error::Unprocessable(_)));
        assert!(matches!(json(json!([{"op": "add", "path": "a"}])), Error::Unprocessable(_)));
        assert!(matches!(json(json!([{"op": "test", "path": "/a", "value": 2}])), Error::Unprocessable(_)));
        assert!(matches!(json(json!([{"op": "remove", "path": "/b"}])), Error::Unprocessable(_)));
        let many = vec![json!({"op": "test", "path": "/a", "value": 1}); 10_001];
        assert!(matches!(json(Value::Array(many)), Error::TooLarge(_)));
        assert!(matches!(cluster(MERGE, &json!([]), json!({})), Err(Error::BadRequest(_))));
    }
}
