//! Rules of roles and bindings, in the words of Kubernetes. Whether somebody may give them away is admission's business.

use serde_json::{Value, json};

use super::Strategy;
use crate::error::Cause;
use crate::filter::authz::rbac::GROUP;
use crate::object::{meta, name::NameRule};

/// Role and ClusterRole.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// It counts everywhere.
    pub is_cluster: bool,
}

/// RoleBinding and ClusterRoleBinding.
#[derive(Clone, Copy, Debug)]
pub struct RoleBinding {
    /// It counts everywhere.
    pub is_cluster: bool,
}

impl Strategy for Role {
    fn name_rule(&self) -> NameRule {
        NameRule::Own
    }

    fn faults(&self, object: &Value) -> Vec<Cause> {
        let rules = object.get("rules").and_then(Value::as_array).into_iter().flatten().enumerate();
        let rules = rules.flat_map(|(index, rule)| rule_faults(&format!("rules[{index}]"), rule, self.is_cluster));
        name_fault(object).into_iter().chain(rules).collect()
    }

    fn needs_version(&self) -> bool {
        false
    }
    fn has_generation(&self) -> bool {
        false
    }
}

impl Strategy for RoleBinding {
    fn name_rule(&self) -> NameRule {
        NameRule::Own
    }

    fn default(&self, object: &mut Value) {
        let group = |holder: &mut Value| {
            let kind = holder.get("kind").and_then(Value::as_str).unwrap_or_default();
            let own = if kind == "ServiceAccount" { None } else { Some(GROUP) };
            if let (Some(map), Some(own)) = (holder.as_object_mut(), own)
                && map.get("apiGroup").and_then(Value::as_str).is_none_or(str::is_empty)
            {
                map.insert("apiGroup".to_owned(), json!(own));
            }
        };
        if let Some(role) = object.get_mut("roleRef") {
            group(role);
        }
        object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten().for_each(group);
    }

    fn faults(&self, object: &Value) -> Vec<Cause> {
        let subjects = object.get("subjects").and_then(Value::as_array).into_iter().flatten().enumerate();
        let is_cluster = self.is_cluster;
        let subjects = subjects.flat_map(|(index, one)| subject_faults(&format!("subjects[{index}]"), one, is_cluster));
        name_fault(object).into_iter().chain(role_faults(object, is_cluster)).chain(subjects).collect()
    }

    fn update_faults(&self, new: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = self.faults(new);
        if new.get("roleRef") != old.get("roleRef") {
            let given = new.get("roleRef").map(Value::to_string).unwrap_or_default();
            causes.push(Cause::invalid("roleRef", &given, "cannot change roleRef"));
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

/// Any segment of a path is a name: `system:node`, but no slash and no percent sign.
fn name_fault(object: &Value) -> Option<Cause> {
    let name = meta::text(object, "name");
    let why = match name {
        "." | ".." => format!("may not be '{name}'"),
        _ if name.contains('/') => "may not contain '/'".to_owned(),
        _ if name.contains('%') => "may not contain '%'".to_owned(),
        _ => return None,
    };
    Some(Cause::invalid("metadata.name", &meta::quoted(name), &why))
}

fn is_empty(rule: &Value, field: &str) -> bool {
    rule.get(field).and_then(Value::as_array).is_none_or(Vec::is_empty)
}

fn rule_faults(path: &str, rule: &Value, is_cluster: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    if is_empty(rule, "verbs") {
        causes.push(Cause::required(&format!("{path}.verbs"), "verbs must contain at least one value"));
    }
    if !is_empty(rule, "nonResourceURLs") {
        let field = format!("{path}.nonResourceURLs");
        let given = rule.get("nonResourceURLs").map(Value::to_string).unwrap_or_default();
        if !is_cluster {
            causes.push(Cause::invalid(&field, &given, "namespaced rules cannot apply to non-resource URLs"));
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|part| !is_empty(rule, part)) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            causes.push(Cause::invalid(&field, &given, why));
        }
        return causes;
    }
    if is_empty(rule, "apiGroups") {
        let why = "resource rules must supply at least one api group";
        causes.push(Cause::required(&format!("{path}.apiGroups"), why));
    }
    if is_empty(rule, "resources") {
        let why = "resource rules must supply at least one resource";
        causes.push(Cause::required(&format!("{path}.resources"), why));
    }
    causes
}

fn text<'a>(holder: &'a Value, field: &str) -> &'a str {
    holder.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn role_faults(object: &Value, is_cluster: bool) -> Vec<Cause> {
    let nothing = json!({});
    let role = object.get("roleRef").unwrap_or(&nothing);
    let mut causes = Vec::new();
    if text(role, "apiGroup") != GROUP {
        causes.push(Cause::not_supported("roleRef.apiGroup", text(role, "apiGroup"), &[GROUP]));
    }
    let kinds: &[&str] = if is_cluster { &["ClusterRole"] } else { &["ClusterRole", "Role"] };
    if !kinds.contains(&text(role, "kind")) {
        causes.push(Cause::not_supported("roleRef.kind", text(role, "kind"), kinds));
    }
    if text(role, "name").is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    causes
}

fn subject_faults(path: &str, subject: &Value, is_cluster: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let at = |field: &str| format!("{path}.{field}");
    if text(subject, "name").is_empty() {
        causes.push(Cause::required(&at("name"), ""));
    }
    let group = text(subject, "apiGroup");
    match text(subject, "kind") {
        "User" | "Group" if group == GROUP => {}
        "User" | "Group" => causes.push(Cause::not_supported(&at("apiGroup"), group, &[GROUP])),
        "ServiceAccount" => {
            if !group.is_empty() {
                causes.push(Cause::not_supported(&at("apiGroup"), group, &[""]));
            }
            if is_cluster && text(subject, "namespace").is_empty() {
                causes.push(Cause::required(&at("namespace"), ""));
            }
        }
        other => causes.push(Cause::not_supported(&at("kind"), other, &["Group", "ServiceAccount", "User"])),
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `field: reason` of each fault.
    fn fields(causes: Vec<Cause>) -> Vec<String> {
        causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.reason)).collect()
    }

    #[test]
    fn a_rule_names_verbs_and_either_resources_or_paths() {
        let faults = |rule: Value, is_cluster| {
            fields(Role { is_cluster }.faults(&json!({"metadata": {"name": "system:x"}, "rules": [rule]})))
        };
        let none: [&str; 0] = [];
        assert_eq!(faults(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), false), none);
        assert_eq!(faults(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}), true), none);
        assert_eq!(
            faults(json!({}), true),
            [
                "rules[0].verbs: FieldValueRequired",
                "rules[0].apiGroups: FieldValueRequired",
                "rules[0].resources: FieldValueRequired"
            ]
        );
        assert_eq!(
            faults(json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}), false),
            ["rules[0].nonResourceURLs: FieldValueInvalid", "rules[0].nonResourceURLs: FieldValueInvalid"]
        );
    }

    #[test]
    fn a_binding_names_a_role_that_never_changes_and_subjects_that_can_exist() {
        let rules = RoleBinding { is_cluster: true };
        let mut good = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "Group", "name": "team"}, {"kind": "ServiceAccount", "name": "a", "namespace": "n"}]});
        rules.default(&mut good);
        assert_eq!(rules.faults(&good), []);
        let mut other = good.clone();
        other["roleRef"]["name"] = json!("edit");
        assert_eq!(fields(rules.update_faults(&other, &good)), ["roleRef: FieldValueInvalid"]);
        let mut bad = json!({"metadata": {"name": "a/b"}, "roleRef": {"kind": "Role"},
            "subjects": [{"kind": "Robot", "name": "x"}, {"kind": "ServiceAccount", "apiGroup": "x"}]});
        rules.default(&mut bad);
        assert_eq!(
            fields(rules.faults(&bad)),
            [
                "metadata.name: FieldValueInvalid",
                "roleRef.kind: FieldValueNotSupported",
                "roleRef.name: FieldValueRequired",
                "subjects[0].kind: FieldValueNotSupported",
                "subjects[1].name: FieldValueRequired",
                "subjects[1].apiGroup: FieldValueNotSupported",
                "subjects[1].namespace: FieldValueRequired"
            ]
        );
    }
}
