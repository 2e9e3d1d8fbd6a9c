//! NamespaceLifecycle: nothing is created in a namespace that is absent or on its way out, and some namespaces stay.

use serde_json::Value;

use super::source::{Namespace, Sources};
use crate::admission::{Attributes, Operation};
use crate::error::{Cause, Error, Qualified, Result};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Refuses what must not happen to, or in, the namespace of an operation.
pub(super) async fn check(attributes: &Attributes, object: &Value, sources: &dyn Sources) -> Result<()> {
    match needs(attributes)? {
        None => Ok(()),
        Some(namespace) => judge(attributes, object, namespace, sources.namespace(namespace).await?),
    }
}

/// The namespace that must be there, if any. Updates and deletions are never held up: they are how a namespace empties.
fn needs(attributes: &Attributes) -> Result<Option<&str>> {
    let is_namespace = attributes.resource.group.is_empty() && attributes.resource.name == "namespaces";
    match attributes.operation {
        Operation::Delete if is_namespace && IMMORTAL.contains(&attributes.name.as_str()) => {
            let resource = Qualified::new("", "namespaces");
            let message = format!("{resource} {:?} is forbidden: this namespace may not be deleted", attributes.name);
            Err(Error::Forbidden { resource, name: attributes.name.clone(), message, causes: Vec::new() })
        }
        Operation::Create | Operation::Connect if !is_namespace => Ok(attributes.namespace.as_deref()),
        Operation::Create | Operation::Update | Operation::Delete | Operation::Connect => Ok(None),
    }
}

fn judge(attributes: &Attributes, object: &Value, namespace: &str, found: Option<Namespace>) -> Result<()> {
    match found {
        None => Err(Error::NotFound { resource: Qualified::new("", "namespaces"), name: namespace.to_owned() }),
        Some(Namespace { is_terminating: true, .. }) => Err(terminating(attributes, object, namespace)),
        Some(Namespace { is_terminating: false, .. }) => Ok(()),
    }
}

fn terminating(attributes: &Attributes, object: &Value, namespace: &str) -> Error {
    let resource = Qualified::new(&attributes.resource.group, &attributes.resource.name);
    let name = shown_name(attributes, object);
    let message = format!(
        "{resource} {name:?} is forbidden: unable to create new content in namespace {namespace} because it is being terminated"
    );
    let cause = Cause {
        reason: "NamespaceTerminating".to_owned(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    };
    Error::Forbidden { resource, name, message, causes: vec![cause] }
}

/// The name for a message: the object's, what it is generated from, or that there is none yet.
pub(super) fn shown_name(attributes: &Attributes, object: &Value) -> String {
    let metadata = |field: &str| {
        object.pointer(&format!("/metadata/{field}")).and_then(Value::as_str).filter(|text| !text.is_empty())
    };
    let named = Some(attributes.name.as_str()).filter(|name| !name.is_empty());
    named.or_else(|| metadata("name")).or_else(|| metadata("generateName")).unwrap_or("Unknown").to_owned()
}
