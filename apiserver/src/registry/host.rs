//! The built-in kinds that standalone needs: what Kubernetes itself serves in a cluster.
//!
//! Their schemas keep unknown fields: they are documents of clients and the node, which the server stores faithfully.
//! What the server itself knows about them (first status, immutability, graceful deletion) is in `resource/host.rs`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Column, DeletePolicy, Kind, Names, Registry, ScalePaths, Scope, Subresource,
    access::{Access, FOLLOW, OWN, Part},
    policy, roles,
};
use crate::{
    request::Verb,
    resource::{Strategy, host},
    wire::protobuf,
};

type Outcome = Result<Kind, merge::SchemaError>;

/// Everything standalone serves besides redis.kun.io.
pub fn registry() -> Result<Registry, merge::SchemaError> {
    let mut kinds = vec![
        config_map()?,
        event()?,
        namespace()?,
        claim()?,
        pod()?,
        secret()?,
        service()?,
        stateful_set()?,
        disruption_budget()?,
        network_policy()?,
        lease()?,
        webhooks("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration")?,
        webhooks(
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
        )?,
    ];
    kinds.extend(roles::kinds()?);
    kinds.extend(policy::kinds()?);
    Ok(Registry::new(kinds))
}

pub(super) fn core(
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
) -> Names {
    Names { group: "", version: "v1", kind, plural, singular, short_names: short }
}

/// An object whose named members are open objects.
pub(super) fn open(description: &str, members: &[&str]) -> Value {
    let member = |name: &&str| {
        let about = format!("{name} of the object, kept as sent.");
        let schema = json!({"type": "object", "description": about, "x-kubernetes-preserve-unknown-fields": true});
        ((*name).to_owned(), schema)
    };
    let properties: serde_json::Map<String, Value> = members.iter().map(member).collect();
    json!({"type": "object", "description": description, "properties": properties, "x-kubernetes-preserve-unknown-fields": true})
}

pub(super) fn kind(names: Names, scope: Scope, schema: Value, strategy: impl Strategy + 'static) -> Outcome {
    Ok(Kind { strategic: true, ..Kind::new(names, scope, schema, Arc::new(strategy))? })
}

/// What the controller makes for a RedisCluster.
fn child() -> Vec<Access> {
    vec![Access::of(Part::Controller, OWN)]
}

fn config_map() -> Outcome {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}, "description": "Texts by key."});
    let mut schema = open("ConfigMap holds configuration.", &[]);
    set(&mut schema, "data", &texts);
    set(&mut schema, "binaryData", &texts);
    let kind = kind(core("ConfigMap", "configmaps", "configmap", &["cm"]), Scope::Namespaced, schema, host::Document)?;
    let columns = vec![Column::new("Data", "string", "{~.data|0}", "Number of keys.")];
    Ok(Kind { columns, protobuf: Some(&protobuf::CONFIG_MAP), access: child(), ..kind })
}

fn secret() -> Outcome {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}, "description": "Base64 by key."});
    let mut schema = open("Secret holds secret data.", &[]);
    set(&mut schema, "data", &texts);
    set(&mut schema, "stringData", &texts);
    set(&mut schema, "type", &json!({"type": "string", "description": "What the keys mean."}));
    let kind = kind(core("Secret", "secrets", "secret", &[]), Scope::Namespaced, schema, host::Secret)?;
    let columns = vec![
        Column::new("Type", "string", "{.type}", "What the keys mean."),
        Column::new("Data", "string", "{~.data|0}", "Number of keys."),
    ];
    Ok(Kind { columns, selectable: &["type"], protobuf: Some(&protobuf::SECRET), access: child(), ..kind })
}

fn set(schema: &mut Value, name: &str, property: &Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert(name.to_owned(), property.clone());
    }
}

fn event() -> Outcome {
    let schema = open("Event is a report of something that happened.", &["involvedObject", "source"]);
    let kind = kind(core("Event", "events", "event", &["ev"]), Scope::Namespaced, schema, host::Document)?;
    let object = "{.involvedObject.kind}/{.involvedObject.name}";
    Ok(Kind {
        columns: vec![
            Column::new("Last Seen", "date", "{.lastTimestamp}", "Time since it was last seen."),
            Column::new("Type", "string", "{.type}", "Normal or Warning."),
            Column::new("Reason", "string", "{.reason}", "For programs."),
            Column::new("Object", "string", object, "What it is about."),
            Column::new("Message", "string", "{.message}", "For people."),
        ],
        selectable: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        is_report: true,
        access: vec![
            Access::of(Part::Controller, &[Verb::Create, Verb::Update]),
            Access::of(Part::Node, &[Verb::Create]),
        ],
        ..kind
    })
}

fn namespace() -> Outcome {
    let schema = open("Namespace is a scope for names.", &["spec", "status"]);
    let kind = kind(core("Namespace", "namespaces", "namespace", &["ns"]), Scope::Cluster, schema, host::Namespace)?;
    Ok(Kind {
        columns: vec![Column::new("Status", "string", "{.status.phase}", "Active or Terminating.")],
        subresources: vec![Subresource::Finalize, Subresource::Status],
        selectable: &["status.phase"],
        protobuf: Some(&protobuf::NAMESPACE),
        access: vec![Access::of(Part::Webhook, FOLLOW), Access::to(Part::Node, "finalize", &[Verb::Update])],
        ..kind
    })
}

fn claim() -> Outcome {
    let schema = open("PersistentVolumeClaim asks for storage.", &["spec", "status"]);
    let names = core("PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim", &["pvc"]);
    let kind = kind(names, Scope::Namespaced, schema, host::Claim)?;
    Ok(Kind {
        columns: vec![
            Column::new("Status", "string", "{.status.phase}", "Pending, Bound or Lost."),
            Column::new("Volume", "string", "{.spec.volumeName}", "The volume behind it."),
            Column::new("Capacity", "string", "{.status.capacity.storage}", "Size it has."),
            Column::new("StorageClass", "string", "{.spec.storageClassName}", "Class asked for."),
        ],
        subresources: vec![Subresource::Status],
        access: vec![
            Access::of(Part::Controller, &[Verb::List, Verb::Watch, Verb::Patch, Verb::Delete]),
            Access::of(Part::Webhook, FOLLOW),
            Access::of(Part::Node, &[Verb::Create]),
            Access::to(Part::Node, "status", &[Verb::Patch]),
        ],
        ..kind
    })
}

fn pod() -> Outcome {
    let schema = open("Pod is a group of containers that run together.", &["spec", "status"]);
    let kind = kind(core("Pod", "pods", "pod", &["po"]), Scope::Namespaced, schema, host::Pod)?;
    Ok(Kind {
        categories: &["all"],
        columns: vec![
            Column::new(
                "Ready",
                "string",
                "{~.status.containerStatuses[ready=true]|0}/{~.spec.containers|0}",
                "Ready containers of all.",
            ),
            Column::new(
                "Status",
                "string",
                "{.status.containerStatuses[0].state.waiting.reason|.status.reason|.status.phase|Unknown}",
                "What it is doing.",
            ),
            Column::new("Restarts", "integer", "{.status.containerStatuses[0].restartCount|0}", "Restarts."),
            Column::new("IP", "string", "{.status.podIP}", "Its address.").wide(),
            Column::new("Node", "string", "{.spec.nodeName}", "Where it runs.").wide(),
        ],
        subresources: vec![Subresource::Status],
        selectable: &["spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase", "status.podIP"],
        delete: DeletePolicy::Graceful,
        access: vec![
            Access::of(Part::Controller, OWN),
            Access::of(Part::Node, &[Verb::Create]),
            Access::to(Part::Node, "status", &[Verb::Patch]),
        ],
        ..kind
    })
}

fn service() -> Outcome {
    let schema = open("Service is a name for a set of pods.", &["spec", "status"]);
    let kind = kind(core("Service", "services", "service", &["svc"]), Scope::Namespaced, schema, host::Service)?;
    Ok(Kind {
        categories: &["all"],
        columns: vec![
            Column::new("Type", "string", "{.spec.type}", "ClusterIP and others."),
            Column::new("Cluster-IP", "string", "{.spec.clusterIP}", "Its address."),
        ],
        subresources: vec![Subresource::Status],
        selectable: &["spec.clusterIP", "spec.type"],
        protobuf: Some(&protobuf::SERVICE),
        access: child(),
        ..kind
    })
}

fn stateful_set() -> Outcome {
    let names = Names {
        group: "apps",
        version: "v1",
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
    };
    let schema = open("StatefulSet is a set of pods with names that last.", &["spec", "status"]);
    let kind = kind(names, Scope::Namespaced, schema, host::StatefulSet)?;
    let scale = ScalePaths { spec: "/spec/replicas", status: "/status/replicas", selector: "/spec/selector" };
    Ok(Kind {
        categories: &["all"],
        columns: vec![Column::new(
            "Ready",
            "string",
            "{.status.readyReplicas|0}/{.spec.replicas}",
            "Ready pods of those asked for.",
        )],
        subresources: vec![Subresource::Scale(scale), Subresource::Status],
        access: vec![Access::of(Part::Controller, OWN), Access::to(Part::Node, "status", &[Verb::Patch])],
        ..kind
    })
}

fn disruption_budget() -> Outcome {
    let names = Names {
        group: "policy",
        version: "v1",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        short_names: &["pdb"],
    };
    let schema = open("PodDisruptionBudget bounds how many pods may be taken away at once.", &["spec", "status"]);
    let kind = kind(names, Scope::Namespaced, schema, host::Workload)?;
    Ok(Kind {
        columns: vec![
            Column::new("Min Available", "string", "{.spec.minAvailable}", "Pods that must stay."),
            Column::new("Max Unavailable", "string", "{.spec.maxUnavailable}", "Pods that may go."),
            Column::new("Allowed Disruptions", "integer", "{.status.disruptionsAllowed|0}", "Pods that may go now."),
        ],
        subresources: vec![Subresource::Status],
        protobuf: Some(&protobuf::DISRUPTION_BUDGET),
        access: child(),
        ..kind
    })
}

fn network_policy() -> Outcome {
    let names = Names {
        group: "networking.k8s.io",
        version: "v1",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        singular: "networkpolicy",
        short_names: &["netpol"],
    };
    let schema = open("NetworkPolicy says who reaches which ports of some pods. Nothing enforces it here.", &["spec"]);
    let kind = kind(names, Scope::Namespaced, schema, host::Workload)?;
    Ok(Kind { access: child(), ..kind })
}

fn lease() -> Outcome {
    let names = Names {
        group: "coordination.k8s.io",
        version: "v1",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        short_names: &[],
    };
    let kind = kind(names, Scope::Namespaced, open("Lease tells who leads.", &["spec"]), host::Document)?;
    Ok(Kind {
        columns: vec![Column::new("Holder", "string", "{.spec.holderIdentity}", "Who holds it.")],
        access: vec![Access::of(Part::Controller, &[Verb::Get, Verb::Create, Verb::Update])],
        ..kind
    })
}

fn webhooks(name: &'static str, plural: &'static str, singular: &'static str) -> Outcome {
    let names =
        Names { group: "admissionregistration.k8s.io", version: "v1", kind: name, plural, singular, short_names: &[] };
    let mut schema = open("Which webhooks admission calls, and when.", &[]);
    // A webhook is known by its name: several appliers may each have theirs in one configuration.
    let mut webhook = open("A webhook: when it is called, where it is, what its failure means.", &[]);
    set(&mut webhook, "name", &json!({"type": "string", "description": "Name, a domain of the owner's."}));
    if let Some(webhook) = webhook.as_object_mut() {
        webhook.insert("required".to_owned(), json!(["name"]));
    }
    let list = json!({
        "type": "array", "description": "The webhooks.", "items": webhook,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
    });
    set(&mut schema, "webhooks", &list);
    let kind = kind(names, Scope::Cluster, schema, host::WebhookConfiguration)?;
    Ok(Kind { columns: vec![Column::new("Webhooks", "integer", "{~.webhooks|0}", "Number of webhooks.")], ..kind })
}
