//! Whether what exists is what was asked for. Pure.
//!
//! What others add is no difference: a server's defaults, and what its own rules let several managers keep side by side, as entries
//! of maps and items of lists that are known by a key. Those rules are Kubernetes' (`x-kubernetes-list-type`, `x-kubernetes-map-type`);
//! here are the ones of the fields that we ask for.

use serde_json::Value;

/// Lists whose items are known by these fields: others may have items of their own in them. In any other list every item is ours.
fn keys(list: &str) -> Option<&'static [&'static str]> {
    match list {
        "containers" | "initContainers" | "volumes" | "env" => Some(&["name"]),
        "volumeMounts" => Some(&["mountPath"]),
        // A container's and a Service's; each has one of the numbers.
        "ports" => Some(&["containerPort", "port", "protocol"]),
        _ => None,
    }
}

/// Maps that are one value: an entry more would select fewer pods, or nodes.
fn is_one_value(map: &str) -> bool {
    matches!(map, "selector" | "matchLabels" | "nodeSelector" | "labelSelector" | "namespaceSelector" | "podSelector")
}

/// Fields in which one thing more, even one that is empty, means something else: whoever adds to a rule of a NetworkPolicy lets more in.
fn is_literal(field: &str) -> bool {
    field == "ingress"
}

/// Whether everything in `desired` is in `live`: maps by key, lists by their items' keys or else item by item, quantities by amount.
#[must_use]
pub fn is_part_of(desired: &Value, live: &Value) -> bool {
    is_within("", desired, live)
}

/// The same for the values of a field.
fn is_within(field: &str, desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (desired, live) if is_literal(field) => desired == live,
        (Value::Object(desired), Value::Object(live)) => {
            let has_all = desired.iter().all(|(key, wanted)| match live.get(key) {
                Some(found) => is_within(key, wanted, found),
                None => is_nothing(wanted),
            });
            has_all && (!is_one_value(field) || live.keys().all(|key| desired.contains_key(key)))
        }
        (Value::Array(desired), Value::Array(live)) => match keys(field) {
            Some(keys) => desired.iter().all(|wanted| {
                let named = live.iter().find(|found| keys.iter().all(|key| found.get(key) == wanted.get(key)));
                named.is_some_and(|found| is_part_of(wanted, found))
            }),
            None => {
                desired.len() == live.len() && desired.iter().zip(live).all(|(wanted, found)| is_part_of(wanted, found))
            }
        },
        (Value::String(desired), Value::String(live)) => desired == live || same_amount(desired, live),
        (desired, live) => desired == live || (is_nothing(desired) && is_nothing(live)),
    }
}

/// API servers leave empty things out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_nothing),
        Value::Array(list) => list.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// API servers write quantities in their canonical form: "1024Mi" becomes "1Gi".
fn same_amount(one: &str, other: &str) -> bool {
    use types::quantity::Quantity;
    match (Quantity::parse(one), Quantity::parse(other)) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), _) | (_, Err(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::build::build;
    use crate::testing::resolved;

    #[test]
    fn what_a_server_adds_is_no_difference_and_what_it_lacks_is() {
        let desired = json!({"spec": {"ports": [{"port": 1}], "type": null, "labels": {}}, "n": 1});
        let live = json!({"spec": {"ports": [{"port": 1, "name": "a"}], "x": true}, "n": 1, "status": {}});
        assert!(is_part_of(&desired, &live));
        assert!(!is_part_of(&json!({"spec": {"ports": [{"port": 2}]}}), &live));
        assert!(!is_part_of(&json!({"spec": {"y": 1}}), &live));
    }

    #[test]
    fn what_others_add_to_a_list_of_named_items_is_no_difference_and_what_they_change_in_ours_is() {
        let ours = json!({"containers": [{"name": "redis", "ports": [{"containerPort": 1, "protocol": "TCP"}]}]});
        let sidecar = json!({"name": "logs", "image": "x"});
        let redis = json!({"name": "redis", "image": "y", "ports": [
            {"containerPort": 1, "protocol": "UDP"}, {"containerPort": 1, "protocol": "TCP", "name": "redis"},
        ]});
        assert!(is_part_of(&ours, &json!({"containers": [sidecar, redis]})));
        assert!(!is_part_of(&ours, &json!({"containers": [sidecar]})));
        let moved = json!({"containers": [{"name": "redis", "ports": [{"containerPort": 2, "protocol": "TCP"}]}]});
        assert!(!is_part_of(&ours, &moved));
        let mounts = json!({"volumeMounts": [{"mountPath": "/data", "name": "data"}]});
        assert!(is_part_of(
            &mounts,
            &json!({"volumeMounts": [{"mountPath": "/x", "name": "x"}, {"mountPath": "/data", "name": "data"}]})
        ));
        assert!(!is_part_of(&mounts, &json!({"volumeMounts": [{"mountPath": "/data", "name": "other"}]})));
    }

    /// Names of lists of objects in what we ask for.
    fn lists(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (field, value) in map {
                    if value.as_array().is_some_and(|items| items.iter().any(Value::is_object)) {
                        found.insert(field.clone());
                    }
                    lists(value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| lists(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn of_each_list_that_we_ask_for_it_is_decided_whether_others_may_add_to_it() {
        let mut found = BTreeSet::new();
        let expression = json!({"key": "a", "operator": "In", "values": ["b"]});
        let selector = json!({"matchExpressions": [expression]});
        let pods = json!({"labelSelector": selector, "topologyKey": "a"});
        let affinity = json!({
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [expression], "matchFields": [expression]},
            ]}},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [pods]},
        });
        let placement = json!({"spread": "Required", "tolerations": [{"operator": "Exists"}], "affinity": affinity});
        for spec in [json!({"storage": {"size": "1Gi"}}), json!({"placement": placement})] {
            let objects = build(&resolved(&spec)).unwrap();
            objects.services.iter().for_each(|object| lists(&json!(object), &mut found));
            objects.stateful_sets.iter().for_each(|object| lists(&json!(object), &mut found));
            objects.budgets.iter().for_each(|object| lists(&json!(object), &mut found));
            objects.network_policy.iter().for_each(|object| lists(&json!(object), &mut found));
        }
        let (shared, whole): (Vec<&str>, Vec<&str>) =
            found.iter().map(String::as_str).partition(|list| keys(list).is_some());
        assert_eq!(shared, ["containers", "env", "initContainers", "ports", "volumeMounts", "volumes"]);
        // Kubernetes knows their items by no key; claim templates cannot be changed.
        let expected = [
            "from",
            "ingress",
            "items",
            "matchExpressions",
            "matchFields",
            "nodeSelectorTerms",
            "preferredDuringSchedulingIgnoredDuringExecution",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "tolerations",
            "volumeClaimTemplates",
        ];
        assert_eq!(whole, expected);
    }

    #[test]
    fn whatever_is_added_to_a_rule_of_a_network_policy_is_a_difference() {
        let objects = build(&resolved(&json!({}))).unwrap();
        let ours = json!(objects.network_policy.unwrap());
        assert!(is_part_of(&ours, &ours));
        let rule = |at: usize, field: &str| format!("/spec/ingress/{at}/{field}");
        for (place, more) in [
            ("/spec/ingress", json!({"ports": [{"port": 16379, "protocol": "TCP"}]})),
            (&rule(0, "ports"), json!({"port": 16379, "protocol": "TCP"})),
            (&rule(1, "from"), json!({"ipBlock": {"cidr": "0.0.0.0/0"}})),
            ("/spec/policyTypes", json!("Egress")),
        ] {
            let mut live = ours.clone();
            live.pointer_mut(place).unwrap().as_array_mut().unwrap().push(more);
            assert!(!is_part_of(&ours, &live), "{place}");
        }
        for (place, field, value) in [
            (rule(1, "from/0"), "namespaceSelector", json!({})),
            (rule(0, "ports/0"), "endPort", json!(16379)),
            ("/spec/podSelector".to_owned(), "matchExpressions", json!([{"key": "a", "operator": "Exists"}])),
            ("/spec/podSelector/matchLabels".to_owned(), "a", json!("b")),
        ] {
            let mut live = ours.clone();
            live.pointer_mut(&place).unwrap().as_object_mut().unwrap().insert(field.to_owned(), value);
            assert!(!is_part_of(&ours, &live), "{place}");
        }
    }

    #[test]
    fn a_list_or_a_map_that_is_one_value_is_ours_as_a_whole() {
        assert!(!is_part_of(&json!({"command": ["a"]}), &json!({"command": ["a", "b"]})));
        assert!(!is_part_of(&json!({"command": ["a", "b"]}), &json!({"command": ["b", "a"]})));
        let ours = json!({"selector": {"matchLabels": {"app": "redis"}}});
        assert!(is_part_of(&ours, &ours));
        assert!(!is_part_of(&ours, &json!({"selector": {"matchLabels": {"app": "redis", "tier": "one"}}})));
        assert!(!is_part_of(
            &json!({"selector": {"app": "redis"}}),
            &json!({"selector": {"app": "redis", "tier": "one"}})
        ));
        let nodes = |nodes: Value| json!({"nodeSelector": nodes});
        assert!(!is_part_of(&nodes(json!({"disk": "fast"})), &nodes(json!({"disk": "fast", "zone": "a"}))));
        let pods = |selector: Value| json!({"labelSelector": selector});
        let more =
            json!({"matchLabels": {"app": "redis"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
        assert!(!is_part_of(&pods(json!({"matchLabels": {"app": "redis"}})), &pods(more)));
        assert!(is_part_of(&json!({"labels": {"app": "redis"}}), &json!({"labels": {"app": "redis", "tier": "one"}})));
    }

    #[test]
    fn quantities_are_compared_by_amount() {
        assert!(is_part_of(&json!({"memory": "1024Mi"}), &json!({"memory": "1Gi"})));
        assert!(!is_part_of(&json!({"memory": "1Gi"}), &json!({"memory": "1G"})));
        assert!(!is_part_of(&json!({"name": "a"}), &json!({"name": "b"})));
    }
}
