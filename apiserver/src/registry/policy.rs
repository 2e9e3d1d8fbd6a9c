//! Admission policies and their bindings, and quotas: the kinds with which an administrator says what may be written.
//!
//! MutatingAdmissionPolicy is served as `v1beta1`, as in Kubernetes 1.34. Its `status` and that of
//! ValidatingAdmissionPolicy exist and stay as clients leave them: nothing here checks expressions against schemas
//! after the fact (`status.typeChecking`); what is wrong with them is told when they are written.

use serde_json::{Value, json};

use super::host::{core, kind, open};
use super::{Column, Kind, Names, Scope, Subresource};
use crate::resource::policy as rules;

const GROUP: &str = "admissionregistration.k8s.io";

/// Their kinds.
pub(super) fn kinds() -> Result<Vec<Kind>, merge::SchemaError> {
    Ok(vec![validating()?, validating_binding()?, mutating()?, mutating_binding()?, quota()?])
}

fn names(version: &'static str, kind: &'static str, plural: &'static str, singular: &'static str) -> Names {
    Names { group: GROUP, version, kind, plural, singular, short_names: &[] }
}

/// An object that is owned as a whole.
fn atomic(description: &str) -> Value {
    json!({"type": "object", "description": description, "x-kubernetes-map-type": "atomic", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list that is owned as a whole.
fn list(description: &str) -> Value {
    let item = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"type": "array", "description": description, "x-kubernetes-list-type": "atomic", "items": item})
}

/// A list whose items have names, and owners of their own.
fn named(description: &str) -> Value {
    let item = json!({
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "description": "Its name."}},
        "x-kubernetes-preserve-unknown-fields": true,
    });
    json!({
        "type": "array",
        "description": description,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": item,
    })
}

fn with_spec(mut schema: Value, properties: Value) -> Value {
    if let Some(spec) = schema.pointer_mut("/properties/spec").and_then(Value::as_object_mut) {
        spec.insert("properties".to_owned(), properties);
    }
    schema
}

fn policy_schema(schema: Value) -> Value {
    // A variable has one owner, not one for its name and one for its expression.
    let mut variables = named("Expressions that others may use by name.");
    if let Some(item) = variables.get_mut("items").and_then(Value::as_object_mut) {
        item.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    with_spec(
        schema,
        json!({
            "paramKind": atomic("Kind of its parameters."),
            "matchConstraints": atomic("What it is about."),
            "matchConditions": named("Which of that: what all of these expressions are true for."),
            "variables": variables,
            "validations": list("Rules."),
            "auditAnnotations": list("What the audit is told."),
            "mutations": list("Changes."),
        }),
    )
}

fn binding_schema(schema: Value) -> Value {
    let word = json!({"type": "string"});
    with_spec(
        schema,
        json!({
            "paramRef": atomic("Its parameters."),
            "matchResources": atomic("Where the policy applies."),
            "validationActions": {
                "type": "array",
                "description": "What follows: Deny, Warn, Audit.",
                "x-kubernetes-list-type": "set",
                "items": word,
            },
        }),
    )
}

fn validating() -> Result<Kind, merge::SchemaError> {
    let names = names("v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "validatingadmissionpolicy");
    let schema =
        open("ValidatingAdmissionPolicy is a set of rules that what is written must follow.", &["spec", "status"]);
    let kind = kind(names, Scope::Cluster, policy_schema(schema), rules::Policy)?;
    Ok(Kind {
        columns: vec![
            Column::new("Validations", "integer", "{~.spec.validations|0}", "Number of rules."),
            Column::new("ParamKind", "string", "{.spec.paramKind.kind}", "Kind of its parameters."),
        ],
        subresources: vec![Subresource::Status],
        ..kind
    })
}

fn validating_binding() -> Result<Kind, merge::SchemaError> {
    let names = names(
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding",
    );
    let schema = open("ValidatingAdmissionPolicyBinding says where a policy applies, and what follows.", &["spec"]);
    let kind = kind(names, Scope::Cluster, binding_schema(schema), rules::Binding)?;
    Ok(Kind { columns: binding_columns(), ..kind })
}

fn binding_columns() -> Vec<Column> {
    vec![
        Column::new("PolicyName", "string", "{.spec.policyName}", "The policy."),
        Column::new("ParamRef", "string", "{.spec.paramRef.name}", "Its parameters."),
    ]
}

fn mutating() -> Result<Kind, merge::SchemaError> {
    let names = names("v1beta1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", "mutatingadmissionpolicy");
    let schema = open("MutatingAdmissionPolicy is a set of changes made to what is written.", &["spec"]);
    let kind = kind(names, Scope::Cluster, policy_schema(schema), rules::Policy)?;
    Ok(Kind {
        columns: vec![
            Column::new("Mutations", "integer", "{~.spec.mutations|0}", "Number of changes."),
            Column::new("ParamKind", "string", "{.spec.paramKind.kind}", "Kind of its parameters."),
        ],
        ..kind
    })
}

fn mutating_binding() -> Result<Kind, merge::SchemaError> {
    let names = names(
        "v1beta1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicybinding",
    );
    let schema = open("MutatingAdmissionPolicyBinding says where a policy applies.", &["spec"]);
    let kind = kind(names, Scope::Cluster, binding_schema(schema), rules::Binding)?;
    Ok(Kind { columns: binding_columns(), ..kind })
}

fn quota() -> Result<Kind, merge::SchemaError> {
    let mut schema = open("ResourceQuota limits how many objects a namespace holds.", &["spec", "status"]);
    for part in ["spec", "status"] {
        if let Some(part) = schema.pointer_mut(&format!("/properties/{part}")) {
            let counts = json!({
                "type": "object",
                "description": "Counts by resource.",
                "additionalProperties": {"x-kubernetes-int-or-string": true},
            });
            part["properties"] = json!({"hard": counts, "used": counts});
        }
    }
    let kind = kind(
        core("ResourceQuota", "resourcequotas", "resourcequota", &["quota"]),
        Scope::Namespaced,
        schema,
        rules::Quota,
    )?;
    Ok(Kind { subresources: vec![Subresource::Status], ..kind })
}
