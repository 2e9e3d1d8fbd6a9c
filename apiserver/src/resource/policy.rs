//! Defaults of admission policies and bindings, and the rules of quotas. What is wrong with a policy's expressions is
//! told by admission, which reads them.

use serde_json::{Map, Value, json};

use super::Strategy;
use crate::admit::quota::counted;
use crate::error::Cause;
use crate::request::User;

/// ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy;

/// Their bindings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Binding;

fn spec(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("spec").and_then(Value::as_object_mut)
}

fn default_match(resources: Option<&mut Value>) {
    let Some(resources) = resources.and_then(Value::as_object_mut) else { return };
    for (field, value) in
        [("matchPolicy", json!("Equivalent")), ("namespaceSelector", json!({})), ("objectSelector", json!({}))]
    {
        resources.entry(field).or_insert(value);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        let rules = resources.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for rule in rules.filter_map(Value::as_object_mut) {
            rule.entry("scope").or_insert_with(|| json!("*"));
        }
    }
}

impl Strategy for Policy {
    fn prepare_create(&self, object: &mut Value, _user: &User) {
        let is_judge = object.get("kind").and_then(Value::as_str) == Some("ValidatingAdmissionPolicy");
        if let Some(map) = object.as_object_mut().filter(|_| is_judge) {
            map.insert("status".to_owned(), json!({}));
        }
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = spec(object) else { return };
        spec.entry("failurePolicy").or_insert_with(|| json!("Fail"));
        default_match(spec.get_mut("matchConstraints"));
    }

    fn needs_version(&self) -> bool {
        false
    }
}

impl Strategy for Binding {
    fn default(&self, object: &mut Value) {
        default_match(spec(object).and_then(|spec| spec.get_mut("matchResources")));
    }

    fn needs_version(&self) -> bool {
        false
    }
}

/// ResourceQuota: of objects only. What this server does not count is refused, rather than believed to be limited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quota;

impl Strategy for Quota {
    fn prepare_create(&self, object: &mut Value, _user: &User) {
        if let Some(map) = object.as_object_mut() {
            map.insert("status".to_owned(), json!({}));
        }
    }

    fn faults(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        for (name, value) in object.pointer("/spec/hard").and_then(Value::as_object).into_iter().flatten() {
            let field = format!("spec.hard[{name}]");
            if counted(name).is_none() {
                let detail = "this server limits counts of objects only, as count/<resource>.<group>";
                causes.push(Cause::forbidden(&field, detail));
            } else if crate::admit::quota::number(value).is_none() {
                causes.push(Cause::invalid(&field, value, "must be an integer that is not negative"));
            }
        }
        for field in ["scopes", "scopeSelector"] {
            if object.pointer(&format!("/spec/{field}")).is_some_and(|value| !value.is_null()) {
                let detail = "this server limits counts of all objects of a resource only";
                causes.push(Cause::forbidden(&format!("spec.{field}"), detail));
            }
        }
        causes
    }

    fn needs_version(&self) -> bool {
        false
    }
    fn has_generation(&self) -> bool {
        false
    }
}
