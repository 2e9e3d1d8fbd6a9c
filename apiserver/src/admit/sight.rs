//! What expressions see of a request; pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::expression::{Asker, Question, Rights, Value};
use crate::admission::{Attributes, GroupVersion};

/// The names of an expression and their values.
pub(super) type Names = BTreeMap<String, Value>;

/// The names every expression sees. `object` is the new object, absent on DELETE; the namespace's object is null for
/// what lies in none.
pub(super) fn names(attributes: &Attributes, object: Option<&Json>, namespace: Option<&Json>) -> Names {
    let value = |json: Option<&Json>| json.map_or(Value::Null, Value::of);
    BTreeMap::from([
        ("object".to_owned(), value(object)),
        ("oldObject".to_owned(), value(attributes.old_object.as_deref())),
        ("request".to_owned(), Value::of(&request(attributes))),
        ("namespaceObject".to_owned(), value(namespace.map(shown).as_ref())),
        ("authorizer".to_owned(), Value::Rights(Arc::new(Rights::Authorizer(Asker::Requester)))),
        ("authorizer.requestResource".to_owned(), Value::Rights(Arc::new(Rights::Resource(own(attributes))))),
    ])
}

/// The same names, and these parameters.
pub(super) fn with_params(names: &Names, params: Option<&Json>) -> Names {
    let mut names = names.clone();
    names.insert("params".to_owned(), params.map_or(Value::Null, Value::of));
    names
}

/// The resource of the request, to be asked about.
fn own(attributes: &Attributes) -> Question {
    Question {
        group: attributes.resource.group.clone(),
        resource: attributes.resource.name.clone(),
        subresource: attributes.subresource.clone().unwrap_or_default(),
        namespace: attributes.namespace.clone().unwrap_or_default(),
        name: attributes.name.clone(),
        ..Question::default()
    }
}

/// Of a namespace, what Kubernetes shows: not who owns its fields or itself.
fn shown(namespace: &Json) -> Json {
    let mut namespace = namespace.clone();
    if let Some(metadata) = namespace.get_mut("metadata").and_then(Json::as_object_mut) {
        for field in ["managedFields", "ownerReferences", "selfLink"] {
            metadata.remove(field);
        }
    }
    if let Some(fields) = namespace.as_object_mut() {
        fields.retain(|name, _| matches!(name.as_str(), "metadata" | "spec" | "status"));
    }
    namespace
}

/// The request as an AdmissionReview would show it, without the objects, which have names of their own.
fn request(attributes: &Attributes) -> Json {
    let Attributes { operation, kind, resource, subresource, name, namespace, user, dry_run, options, .. } = attributes;
    let of = |what: &str, of: &GroupVersion| json!({"group": of.group, "version": of.version, what: of.name});
    let mut request = Map::new();
    let mut set = |name: &str, value: Json| {
        request.insert(name.to_owned(), value);
    };
    set("uid", json!(""));
    set("kind", of("kind", kind));
    set("resource", of("resource", resource));
    let (requested_kind, requested_resource) = attributes.requested();
    set("requestKind", of("kind", requested_kind));
    set("requestResource", of("resource", requested_resource));
    if let Some(subresource) = subresource {
        set("subResource", json!(subresource));
        set("requestSubResource", json!(subresource));
    }
    if !name.is_empty() {
        set("name", json!(name));
    }
    if let Some(namespace) = namespace {
        set("namespace", json!(namespace));
    }
    set("operation", json!(operation.as_str()));
    let mut info = Map::new();
    for (field, value, is_empty) in [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ] {
        if !is_empty {
            info.insert(field.to_owned(), value);
        }
    }
    set("userInfo", Json::Object(info));
    set("dryRun", json!(dry_run));
    set("options", options.clone());
    Json::Object(request)
}
