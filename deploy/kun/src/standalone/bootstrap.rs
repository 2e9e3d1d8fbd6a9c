//! Objects an installation starts with: namespaces, and the registration of our webhook. Written only if they differ.

use apiserver::registry::{rbac, redis};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::hooks::Registration;

/// Namespaces that are always there.
const NAMESPACES: [&str; 3] = ["default", "kube-system", super::NAMESPACE];
/// Name of both webhook configurations, and of the webhooks in them.
const WEBHOOK: &str = "redis.kun.io";
/// How long the API server waits for a review. Ours answers from memory.
const TIMEOUT_SECONDS: i32 = 10;

/// A failure to write an object.
#[derive(Debug, thiserror::Error)]
#[error("writing {kind} {name}")]
pub struct Error {
    kind: &'static str,
    name: String,
    source: kube::Error,
}

/// Creates the namespaces that are missing.
pub(super) async fn namespaces(client: &Client) -> Result<(), Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    for name in NAMESPACES {
        let failed = |source| Error { kind: "namespace", name: name.to_owned(), source };
        if api.get_opt(name).await.map_err(failed)?.is_some() {
            continue;
        }
        let namespace = Namespace { metadata: meta(name), ..Namespace::default() };
        match api.create(&PostParams::default(), &namespace).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Creates the roles that every cluster has, where they are missing: what somebody changed stays.
pub(super) async fn roles(client: &Client) -> Result<(), Error> {
    let api: Api<ClusterRole> = Api::all(client.clone());
    for role in cluster_roles() {
        let name = role.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let failed = |source| Error { kind: "clusterrole", name: name.clone(), source };
        if api.get_opt(&name).await.map_err(failed)?.is_none() {
            let role = serde_json::from_value(role).map_err(|error| failed(kube::Error::SerdeError(error)))?;
            api.create(&PostParams::default(), &role).await.map_err(failed)?;
        }
    }
    Ok(())
}

/// cluster-admin; admin, edit and view, which collect the rules of others by label; and what they collect here.
fn cluster_roles() -> Vec<Value> {
    let role = |name: &str, more: Value| {
        let mut role =
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}});
        if let (Some(role), Value::Object(more)) = (role.as_object_mut(), more) {
            role.extend(more);
        }
        role
    };
    let all =
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]);
    let collecting = |name: &str| {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
        role(
            name,
            json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}, "rules": []}),
        )
    };
    let mut roles = vec![role("cluster-admin", json!({"rules": all}))];
    roles.extend(["admin", "edit", "view"].map(collecting));
    if let Ok(redis) = redis::registry() {
        roles.extend(rbac::cluster_roles(&redis, types::GROUP));
    }
    // As in Kubernetes, who may only look does not see Secrets.
    let core = |resources: &[&str], verbs: &[&str]| json!({"apiGroups": ["", "apps", "networking.k8s.io", "policy"], "resources": resources, "verbs": verbs});
    let plain = [
        "configmaps",
        "events",
        "networkpolicies",
        "persistentvolumeclaims",
        "poddisruptionbudgets",
        "pods",
        "services",
        "statefulsets",
    ];
    let (read, write) = (["get", "list", "watch"], ["create", "delete", "deletecollection", "patch", "update"]);
    let rights =
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings", "roles"], "verbs": ["*"]});
    let aggregated = |name: &str, rules: Vec<Value>| {
        let labels = json!({format!("rbac.authorization.k8s.io/aggregate-to-{name}"): "true"});
        let mut role = role(&format!("system:aggregate-to-{name}"), json!({"rules": rules}));
        if let Some(metadata) = role.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("labels".to_owned(), labels);
        }
        role
    };
    let view = vec![core(&plain, &read), core(&["namespaces"], &read)];
    let edit =
        [view.clone(), vec![core(&plain, &write), core(&["secrets"], &read), core(&["secrets"], &write)]].concat();
    let admin = [edit.clone(), vec![rights]].concat();
    roles.extend([aggregated("view", view), aggregated("edit", edit), aggregated("admin", admin)]);
    roles
}

/// Registers the webhook.
pub(super) async fn webhooks(client: &Client, registration: &Registration) -> Result<(), Error> {
    let Registration { url, authority_pem } = registration;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    put(&mutating, "mutatingwebhookconfiguration", configuration("mutate", url, authority_pem)).await?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    put(&validating, "validatingwebhookconfiguration", configuration("validate", url, authority_pem)).await
}

/// One configuration, pure. Deletes are reviewed too (protected objects), but there is nothing to mutate in them.
fn configuration(path: &str, url: &str, authority_pem: &str) -> Value {
    let mutates = path == "mutate";
    let operations = if mutates { json!(["CREATE", "UPDATE"]) } else { json!(["CREATE", "UPDATE", "DELETE"]) };
    // Every subresource but the status is an action to be judged.
    let resources = json!([
        "redisclusters",
        "redisclusters/scale",
        "redisclusters/backup",
        "redisclusters/failover",
        "redisclusters/restart",
        "redisbackups",
        "redisoperations",
        "redispolicies"
    ]);
    let mut webhook = json!({
        "name": WEBHOOK,
        "clientConfig": {
            "url": format!("{url}/{path}"),
            "caBundle": BASE64_STANDARD.encode(authority_pem)
        },
        "rules": [{"apiGroups": ["redis.kun.io"], "apiVersions": ["v1"], "operations": operations, "resources": resources, "scope": "*"}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": TIMEOUT_SECONDS
    });
    if mutates && let Some(webhook) = webhook.as_object_mut() {
        webhook.insert("reinvocationPolicy".to_owned(), json!("IfNeeded"));
    }
    let webhooks = if mutates { json!([webhook]) } else { json!([statuses(&webhook), webhook]) };
    json!({"metadata": {"name": WEBHOOK, "labels": {"app.kubernetes.io/managed-by": "kun"}}, "webhooks": webhooks})
}

/// Figures of a status decide what is safe: nobody but our controller writes one. As the other webhook, but for what it is asked.
fn statuses(other: &Value) -> Value {
    let mut webhook = other.clone();
    let resources = json!(["redisclusters/status", "redisbackups/status", "redisoperations/status"]);
    let asked = [
        ("name", json!(format!("status.{WEBHOOK}"))),
        (
            "rules",
            json!([{"apiGroups": ["redis.kun.io"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": resources, "scope": "*"}]),
        ),
        (
            "matchConditions",
            json!([{
                "name": "not-by-our-controller",
                "expression": format!("request.userInfo.username != '{}'", types::names::CONTROLLER_USER),
            }]),
        ),
    ];
    if let Some(webhook) = webhook.as_object_mut() {
        webhook.extend(asked.map(|(name, value)| (name.to_owned(), value)));
    }
    webhook
}

async fn put<K>(api: &Api<K>, kind: &'static str, wanted: Value) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let failed = |source| Error { kind, name: WEBHOOK.to_owned(), source };
    let unreadable = |error| failed(kube::Error::SerdeError(error));
    let Some(live) = api.get_opt(WEBHOOK).await.map_err(failed)? else {
        let object = serde_json::from_value(wanted).map_err(unreadable)?;
        return api.create(&PostParams::default(), &object).await.map(drop).map_err(failed);
    };
    let mut merged = serde_json::to_value(&live).map_err(unreadable)?;
    if is_within(wanted.get("webhooks"), merged.get("webhooks")) {
        return Ok(());
    }
    if let (Some(merged), Some(webhooks)) = (merged.as_object_mut(), wanted.get("webhooks")) {
        merged.insert("webhooks".to_owned(), webhooks.clone());
    }
    let object = serde_json::from_value(merged).map_err(unreadable)?;
    api.replace(WEBHOOK, &PostParams::default(), &object).await.map(drop).map_err(failed)
}

/// Whether the live value says at least what is wanted; what a server adds as defaults does not count.
fn is_within(wanted: Option<&Value>, live: Option<&Value>) -> bool {
    match (wanted, live) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(Value::Object(wanted)), Some(Value::Object(live))) => {
            wanted.iter().all(|(key, value)| is_within(Some(value), live.get(key)))
        }
        (Some(Value::Array(wanted)), Some(Value::Array(live))) => {
            wanted.len() == live.len() && wanted.iter().zip(live).all(|(a, b)| is_within(Some(a), Some(b)))
        }
        (Some(wanted), Some(live)) => wanted == live,
    }
}

fn meta(name: &str) -> kube::api::ObjectMeta {
    kube::api::ObjectMeta { name: Some(name.to_owned()), ..kube::api::ObjectMeta::default() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn both_configurations_are_what_kubernetes_calls_them() {
        let mutating: MutatingWebhookConfiguration =
            serde_json::from_value(configuration("mutate", "https://127.0.0.1:4711", "PEM")).unwrap();
        let validating: ValidatingWebhookConfiguration =
            serde_json::from_value(configuration("validate", "https://127.0.0.1:4711", "PEM")).unwrap();
        let mutating = mutating.webhooks.unwrap().remove(0);
        let [statuses, validating] = <[_; 2]>::try_from(validating.webhooks.unwrap()).unwrap();
        let judged = &statuses.match_conditions.unwrap()[0].expression;
        assert_eq!(
            (statuses.name.as_str(), judged.as_str()),
            ("status.redis.kun.io", "request.userInfo.username != 'kun:controller'")
        );
        assert_eq!(mutating.client_config.url.as_deref(), Some("https://127.0.0.1:4711/mutate"));
        assert_eq!(validating.client_config.url.as_deref(), Some("https://127.0.0.1:4711/validate"));
        assert_eq!(validating.client_config.ca_bundle.unwrap().0, b"PEM");
        assert_eq!(mutating.rules.unwrap()[0].operations, Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]));
        assert_eq!(validating.failure_policy.as_deref(), Some("Fail"));
    }

    #[test]
    fn what_a_server_adds_is_no_difference_and_what_it_lacks_is() {
        let wanted = json!([{"name": "a", "rules": ["x"]}]);
        assert!(is_within(Some(&wanted), Some(&json!([{"name": "a", "rules": ["x"], "namespaceSelector": {}}]))));
        assert!(!is_within(Some(&wanted), Some(&json!([{"name": "a", "rules": ["x", "y"]}]))));
        assert!(!is_within(Some(&wanted), Some(&json!([{"name": "b", "rules": ["x"]}]))));
        assert!(!is_within(Some(&wanted), None));
    }
}
