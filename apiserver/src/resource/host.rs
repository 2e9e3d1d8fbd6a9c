//! What the server knows about the built-in kinds of standalone: enough that the controller and the node cannot tell
//! them from Kubernetes' own.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::Strategy;
use crate::{
    error::Cause,
    object::{meta, name::NameRule},
    request::User,
};

/// Seconds a pod is given to end if its spec does not say.
const POD_GRACE: i64 = 30;
/// Finalizer of a namespace that has not been emptied yet.
const NAMESPACE_FINALIZER: &str = "kubernetes";
/// Label every namespace carries.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// Kinds that are documents: no generation, nothing to fill in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Document;

impl Strategy for Document {
    fn needs_version(&self) -> bool {
        false
    }
    fn has_generation(&self) -> bool {
        false
    }
}

/// Kinds with a spec and a status that the server has nothing to add to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Workload;

impl Strategy for Workload {
    fn needs_version(&self) -> bool {
        false
    }
}

/// Secret: `stringData` is written into `data`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Secret;

impl Strategy for Secret {
    fn default(&self, object: &mut Value) {
        let Some(map) = object.as_object_mut() else { return };
        map.entry("type").or_insert_with(|| json!("Opaque"));
        let Some(Value::Object(texts)) = map.remove("stringData") else { return };
        let data = map.entry("data").or_insert_with(|| json!({}));
        if let Some(data) = data.as_object_mut() {
            for (key, text) in texts {
                data.insert(key, json!(STANDARD.encode(text.as_str().unwrap_or_default())));
            }
        }
    }

    fn faults(&self, object: &Value) -> Vec<Cause> {
        let data = object.get("data").and_then(Value::as_object).into_iter().flatten();
        data.filter(|(_, value)| value.as_str().is_none_or(|text| STANDARD.decode(text).is_err()))
            .map(|(key, _)| Cause::invalid(&format!("data[{key}]"), &"<hidden>", "must be base64"))
            .collect()
    }

    fn needs_version(&self) -> bool {
        false
    }
    fn has_generation(&self) -> bool {
        false
    }
}

/// Namespace: emptied by the node before it goes (`spec.finalizers`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Namespace;

impl Strategy for Namespace {
    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }

    fn default(&self, object: &mut Value) {
        let name = meta::text(object, "name").to_owned();
        let Some(metadata) = meta::map(object).filter(|_| !name.is_empty()) else { return };
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(NAMESPACE_LABEL.to_owned(), json!(name));
        }
    }

    fn prepare_create(&self, object: &mut Value, _user: &User) {
        insert(object, "spec", json!({"finalizers": [NAMESPACE_FINALIZER]}));
        insert(object, "status", json!({"phase": "Active"}));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if let Some(spec) = old.get("spec") {
            insert(new, "spec", spec.clone());
        }
    }

    fn is_held(&self, object: &Value) -> bool {
        let own = object.pointer("/spec/finalizers").and_then(Value::as_array);
        own.is_some_and(|list| !list.is_empty()) || !meta::finalizers(object).is_empty()
    }

    fn mark_terminating(&self, object: &mut Value) {
        insert(object, "status", json!({"phase": "Terminating"}));
    }

    fn needs_version(&self) -> bool {
        false
    }
    fn has_generation(&self) -> bool {
        false
    }
}

/// PersistentVolumeClaim.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claim;

impl Strategy for Claim {
    fn prepare_create(&self, object: &mut Value, _user: &User) {
        insert(object, "status", json!({"phase": "Pending"}));
    }

    fn needs_version(&self) -> bool {
        false
    }
    fn has_generation(&self) -> bool {
        false
    }
}

/// Pod: given time to end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pod;

impl Strategy for Pod {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
        spec.entry("restartPolicy").or_insert_with(|| json!("Always"));
        spec.entry("terminationGracePeriodSeconds").or_insert_with(|| json!(POD_GRACE));
    }

    fn prepare_create(&self, object: &mut Value, _user: &User) {
        insert(object, "status", json!({"phase": "Pending"}));
    }

    /// A pod that runs nowhere, or runs no more, needs no time.
    fn grace(&self, object: &Value) -> i64 {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Succeeded" | "Failed") {
            return 0;
        }
        let asked = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
        asked.unwrap_or(POD_GRACE).max(0)
    }

    fn needs_version(&self) -> bool {
        false
    }
}

/// Service: its name is a DNS label that begins with a letter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Service;

impl Strategy for Service {
    fn name_rule(&self) -> NameRule {
        NameRule::Letter
    }

    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.entry("type").or_insert_with(|| json!("ClusterIP"));
        }
    }

    /// An address once given stays, as in Kubernetes; a client need not repeat it.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        for field in ["clusterIP", "clusterIPs"] {
            let Some(live) = old.pointer(&format!("/spec/{field}")) else { continue };
            if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
                spec.entry(field).or_insert_with(|| live.clone());
            }
        }
    }

    fn needs_version(&self) -> bool {
        false
    }
    fn has_generation(&self) -> bool {
        false
    }
}

/// StatefulSet: most of its spec cannot change.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatefulSet;

/// What of a StatefulSet's spec may change.
const MUTABLE: [&str; 7] = [
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
    "replicas",
    "revisionHistoryLimit",
    "template",
    "updateStrategy",
];

impl Strategy for StatefulSet {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
        spec.entry("replicas").or_insert_with(|| json!(1));
        spec.entry("podManagementPolicy").or_insert_with(|| json!("OrderedReady"));
        spec.entry("revisionHistoryLimit").or_insert_with(|| json!(10));
        spec.entry("updateStrategy")
            .or_insert_with(|| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
    }

    fn prepare_create(&self, object: &mut Value, _user: &User) {
        insert(object, "status", json!({"replicas": 0}));
    }

    fn faults(&self, object: &Value) -> Vec<Cause> {
        let replicas = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(-1);
        if replicas >= 0 {
            return Vec::new();
        }
        vec![Cause::invalid("spec.replicas", &replicas, "must be greater than or equal to 0")]
    }

    fn update_faults(&self, new: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = self.faults(new);
        if fixed(new) != fixed(old) {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                          'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                          'minReadySeconds' are forbidden";
            causes.push(Cause::forbidden("spec", detail));
        }
        causes
    }

    fn needs_version(&self) -> bool {
        false
    }
}

fn fixed(object: &Value) -> Map<String, Value> {
    let mut spec = object.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    spec.retain(|field, _| !MUTABLE.contains(&field.as_str()));
    spec
}

/// Mutating- and ValidatingWebhookConfiguration: the defaults of Kubernetes.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebhookConfiguration;

impl Strategy for WebhookConfiguration {
    fn default(&self, object: &mut Value) {
        let is_mutating = object.get("kind").and_then(Value::as_str) == Some("MutatingWebhookConfiguration");
        let hooks = object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten();
        for hook in hooks.filter_map(Value::as_object_mut) {
            for (field, value) in [
                ("failurePolicy", json!("Fail")),
                ("matchPolicy", json!("Equivalent")),
                ("namespaceSelector", json!({})),
                ("objectSelector", json!({})),
                ("timeoutSeconds", json!(10)),
            ] {
                hook.entry(field).or_insert(value);
            }
            if is_mutating {
                hook.entry("reinvocationPolicy").or_insert_with(|| json!("Never"));
            }
            let rules = hook.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten();
            for rule in rules.filter_map(Value::as_object_mut) {
                rule.entry("scope").or_insert_with(|| json!("*"));
            }
        }
    }

    fn faults(&self, object: &Value) -> Vec<Cause> {
        let hooks = object.get("webhooks").and_then(Value::as_array).into_iter().flatten().enumerate();
        let required = |index: usize, hook: &Value| -> Vec<Cause> {
            let absent = |field: &&&str| hook.get(**field).is_none_or(Value::is_null);
            let fields = ["name", "clientConfig", "sideEffects", "admissionReviewVersions"];
            fields
                .iter()
                .filter(absent)
                .map(|field| Cause::required(&format!("webhooks[{index}].{field}"), ""))
                .collect()
        };
        hooks.flat_map(|(index, hook)| required(index, hook)).collect()
    }

    fn needs_version(&self) -> bool {
        false
    }
}

fn insert(object: &mut Value, member: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(member.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_becomes_data_and_is_not_kept() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"b": "hi"}});
        Secret.default(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "eA==", "b": "aGk="}}));
        let faults = Secret.faults(&json!({"data": {"a": "not base64!"}}));
        assert_eq!(faults, [Cause::invalid("data[a]", &"<hidden>", "must be base64")]);
    }

    #[test]
    fn only_a_pod_that_runs_gets_time_to_end() {
        let pod = |node: &str, phase: &str| json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 7}, "status": {"phase": phase}});
        assert_eq!(Pod.grace(&pod("n", "Running")), 7);
        assert_eq!((Pod.grace(&pod("", "Pending")), Pod.grace(&pod("n", "Failed"))), (0, 0));
    }

    #[test]
    fn most_of_a_stateful_set_is_immutable() {
        let old = json!({"spec": {"replicas": 1, "serviceName": "a", "template": {}}});
        let scaled = json!({"spec": {"replicas": 2, "serviceName": "a", "template": {"x": 1}}});
        assert_eq!(StatefulSet.update_faults(&scaled, &old), []);
        let moved = json!({"spec": {"replicas": 1, "serviceName": "b", "template": {}}});
        assert_eq!(StatefulSet.update_faults(&moved, &old).len(), 1);
    }

    #[test]
    fn a_namespace_is_held_until_it_was_emptied() {
        let mut namespace = json!({"metadata": {"name": "a"}});
        Namespace.default(&mut namespace);
        Namespace.prepare_create(&mut namespace, &User::default());
        assert_eq!(
            namespace,
            json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
        );
        assert!(Namespace.is_held(&namespace));
        assert!(!Namespace.is_held(&json!({"spec": {"finalizers": []}})));
    }
}
