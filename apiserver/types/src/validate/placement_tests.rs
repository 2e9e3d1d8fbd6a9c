#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use serde_json::{Value, json};

use super::*;

fn faults(placement: &Value) -> Vec<String> {
    let mut faults = Faults::default();
    super::placement(&mut faults, &Path::new("p"), &serde_json::from_value(placement.clone()).unwrap());
    faults.0.iter().map(ToString::to_string).collect()
}

/// Each placement has exactly these faults.
fn all<const N: usize>(table: [(Value, Vec<&str>); N]) {
    for (placement, expected) in table {
        assert_eq!(faults(&placement), expected, "{placement}");
    }
}

const WORD: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

#[test]
fn topology_keys_are_label_keys_each_once_and_few() {
    all([
        (json!({"topologyKeys": ["topology.kubernetes.io/zone", "rack"]}), vec![]),
        (json!({"topologyKeys": [""]}), vec!["p.topologyKeys[0]: Required value: can not be empty"]),
        (
            json!({"topologyKeys": ["rack", "-", "rack"]}),
            vec![
                &format!("p.topologyKeys[1]: Invalid value: \"-\": {WORD}"),
                "p.topologyKeys[2]: Duplicate value: \"rack\"",
            ],
        ),
        (
            json!({"topologyKeys": ["1", "2", "3", "4", "5", "6", "7", "8", "9"]}),
            vec!["p.topologyKeys: Too many: 9: must have at most 8 items"],
        ),
    ]);
}

#[test]
fn a_node_selector_is_a_map_of_labels() {
    all([
        (json!({"nodeSelector": {"example.com/disk": "fast", "empty": ""}}), vec![]),
        (
            json!({"nodeSelector": {"a b": "c d"}}),
            vec![
                &format!("p.nodeSelector: Invalid value: \"a b\": {WORD}"),
                &format!("p.nodeSelector: Invalid value: \"c d\": {VALUE}"),
            ],
        ),
    ]);
    let many: Value = (0..65).map(|n| (format!("a{n}"), json!("b"))).collect::<serde_json::Map<_, _>>().into();
    all([(json!({"nodeSelector": many}), vec!["p.nodeSelector: Too many: 65: must have at most 64 items"])]);
}

#[test]
fn a_priority_class_is_a_subdomain_and_not_one_of_kubernetes_own() {
    let system = "p.priorityClassName: Forbidden: priority class names with 'system-' prefix are reserved for system use only: the pods of a RedisCluster must not push those of the system off their nodes";
    all([
        (json!({"priorityClassName": "my.databases-1"}), vec![]),
        (json!({"priorityClassName": "systems"}), vec![]),
        (json!({"priorityClassName": "system-node-critical"}), vec![system]),
        (json!({"priorityClassName": "system-cluster-critical"}), vec![system]),
        (json!({"priorityClassName": "system-"}), vec![system]),
        (json!({"priorityClassName": ""}), vec![&format!("p.priorityClassName: Invalid value: \"\": {SUBDOMAIN}")]),
        (json!({"priorityClassName": "A"}), vec![&format!("p.priorityClassName: Invalid value: \"A\": {SUBDOMAIN}")]),
    ]);
}

#[test]
fn tolerations_follow_the_rules_of_pods() {
    let one = |toleration: Value| json!({"tolerations": [toleration]});
    all([
        (one(json!({"operator": "Exists"})), vec![]),
        (one(json!({"key": "a", "value": "b"})), vec![]),
        (one(json!({"key": "a", "operator": "Equal", "effect": "NoExecute", "tolerationSeconds": -1})), vec![]),
        (one(json!({"key": "a", "operator": "Exists", "effect": "PreferNoSchedule"})), vec![]),
        (
            one(json!({})),
            vec![
                "p.tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ],
        ),
        (
            one(json!({"key": "a b", "operator": "Exists", "value": "c"})),
            vec![
                &format!("p.tolerations[0].key: Invalid value: \"a b\": {WORD}"),
                "p.tolerations[0].operator: Invalid value: \"c\": value must be empty when `operator` is 'Exists'",
            ],
        ),
        (
            one(json!({"key": "a", "value": "b c"})),
            vec![&format!("p.tolerations[0].operator: Invalid value: \"b c\": {VALUE}")],
        ),
        (
            one(json!({"key": "a", "operator": "Gt", "effect": "Never", "tolerationSeconds": 1})),
            vec![
                "p.tolerations[0].effect: Invalid value: \"Never\": effect must be 'NoExecute' when `tolerationSeconds` is set",
                "p.tolerations[0].operator: Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\"",
                "p.tolerations[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            ],
        ),
    ]);
    let many = vec![json!({"operator": "Exists"}); 65];
    all([(json!({"tolerations": many}), vec!["p.tolerations: Too many: 65: must have at most 64 items"])]);
}

#[test]
fn terms_about_nodes_follow_the_rules_of_pods() {
    let nodes = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    let expression = |expression: Value| nodes(json!([{"matchExpressions": [expression]}]));
    let field = |field: Value| nodes(json!([{"matchFields": [field]}]));
    let preferred = |weight: i32, term: Value| json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": term}]}}});
    let required = "p.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let at = |tail: &str| format!("{required}{tail}");
    all([
        (expression(json!({"key": "a", "operator": "Lt", "values": ["5"]})), vec![]),
        (field(json!({"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]})), vec![]),
        (nodes(json!([])), vec![&at(": Required value: must have at least one node selector term")]),
        (
            expression(json!({"key": "a", "operator": "In"})),
            vec![&at(
                "[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            )],
        ),
        (
            expression(json!({"key": "a", "operator": "Gt", "values": ["1", "2"]})),
            vec![&at(
                "[0].matchExpressions[0].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
            )],
        ),
        (
            expression(json!({"key": "-", "operator": "Like", "values": ["b c"]})),
            vec![
                &at("[0].matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator"),
                &at(&format!("[0].matchExpressions[0].key: Invalid value: \"-\": {WORD}")),
                &at(&format!("[0].matchExpressions[0].values[0]: Invalid value: \"b c\": {VALUE}")),
            ],
        ),
        (
            field(json!({"key": "metadata.uid", "operator": "Exists"})),
            vec![
                &at("[0].matchFields[0].operator: Invalid value: \"Exists\": not a valid selector operator"),
                &at("[0].matchFields[0].key: Invalid value: \"metadata.uid\": not a valid field selector key"),
            ],
        ),
        (
            field(json!({"key": "metadata.name", "operator": "In", "values": ["A", "b"]})),
            vec![
                &at(
                    "[0].matchFields[0].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                ),
                &at(&format!("[0].matchFields[0].values[0]: Invalid value: \"A\": {SUBDOMAIN}")),
            ],
        ),
        (preferred(100, json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]})), vec![]),
        (
            preferred(0, json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]})),
            vec![
                "p.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
                "p.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ],
        ),
    ]);
}

#[test]
fn terms_about_pods_follow_the_rules_of_pods() {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let required =
            |term: Value| json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
        let preferred = |weight: i32| {
            json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": weight, "podAffinityTerm": {"topologyKey": "zone"}}]}}})
        };
        let at = |tail: &str| format!("p.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution[0]{tail}");
        let weight = format!(
            "p.affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100"
        );
        let fine = json!({
            "topologyKey": "zone", "namespaces": ["a"], "namespaceSelector": {}, "matchLabelKeys": ["x"], "mismatchLabelKeys": ["tenant"],
            "labelSelector": {"matchExpressions": [{"key": "tenant", "operator": "Exists"}]},
        });
        all([
            (required(fine), vec![]),
            (preferred(1), vec![]),
            (preferred(101), vec![&weight]),
            (
                required(json!({"topologyKey": ""})),
                vec![
                    &at(".topologyKey: Required value: can not be empty"),
                    &at(".topologyKey: Invalid value: \"\": name part must be non-empty"),
                    &at(&format!(".topologyKey: Invalid value: \"\": {WORD}")),
                ],
            ),
            (
                required(json!({
                    "topologyKey": "zone", "namespaces": ["a.b"],
                    "labelSelector": {"matchLabels": {"-": "b"}, "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
                    "namespaceSelector": {"matchLabels": {"a": "-"}},
                })),
                vec![
                    &at(&format!(".labelSelector.matchLabels: Invalid value: \"-\": {WORD}")),
                    &at(
                        ".labelSelector.matchExpressions[0].operator: Invalid value: \"Gt\": not a valid selector operator",
                    ),
                    &at(&format!(".namespaceSelector.matchLabels: Invalid value: \"-\": {VALUE}")),
                    &at(&format!(".namespaces[0]: Invalid value: \"a.b\": {LABEL}")),
                ],
            ),
            (
                required(json!({"topologyKey": "zone", "matchLabelKeys": ["a"]})),
                vec![&at(".matchLabelKeys: Forbidden: must not be specified when labelSelector is not set")],
            ),
            (
                required(json!({
                    "topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["a", "c"],
                    "mismatchLabelKeys": ["c", "-"],
                })),
                vec![
                    &at(&format!(".mismatchLabelKeys[1]: Invalid value: \"-\": {WORD}")),
                    &at(".matchLabelKeys[0]: Invalid value: \"a\": exists in both matchLabelKeys and labelSelector"),
                    &at(
                        ".matchLabelKeys[1]: Invalid value: \"c\": exists in both matchLabelKeys and mismatchLabelKeys",
                    ),
                ],
            ),
        ]);
    }
}

#[test]
fn all_of_it_together_is_bounded() {
    let values: Vec<String> = (0..64).map(|n| format!("{n:063}")).collect();
    let expressions = vec![json!({"key": "a", "operator": "In", "values": values}); 8];
    let placement = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": expressions}],
    }}}});
    all([(placement, vec!["p: Too long: may not be more than 32768 bytes"])]);
}
