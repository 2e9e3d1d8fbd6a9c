//! Golden and property tests of everything that is built.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use serde_json::{Value, json};

use super::*;
use crate::testing::resolved;

fn all(resolved: &Resolved) -> Value {
    let Objects { secrets, config_map, services, network_policy, stateful_sets, budgets } = build(resolved).unwrap();
    json!({
        "secrets": secrets, "configMap": config_map, "services": services, "statefulSets": stateful_sets,
        "networkPolicy": network_policy, "budgets": budgets,
    })
}

fn full() -> Value {
    json!({
        "version": "7.0", "shards": 1, "replicasPerShard": 1,
        "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "storage": {"size": "10Gi", "className": "fast"},
        "config": {"databases": "16", "slowlog-max-len": "256"},
        "persistence": {"snapshots": [{"seconds": 60, "changes": 1000}]},
    })
}

/// Compares with the golden file; `KUN_GOLDEN=write` writes it instead.
fn golden(name: &str, value: &Value) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let text = serde_json::to_string_pretty(value).unwrap() + "\n";
    if std::env::var_os("KUN_GOLDEN").is_some_and(|mode| mode == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, golden, "{name}: KUN_GOLDEN=write writes it anew");
}

#[test]
fn everything_that_is_built_is_as_the_golden_file_says() {
    golden("objects.json", &all(&resolved(&full())));
}

#[test]
fn the_same_specification_builds_the_same_objects() {
    assert_eq!(all(&resolved(&full())), all(&resolved(&full())));
}

fn marks(spec: &Value) -> (String, String) {
    let objects = build(&resolved(spec)).unwrap();
    let set = &objects.stateful_sets[0];
    let template = set.spec.as_ref().unwrap().template.metadata.clone().unwrap().annotations.unwrap();
    let digest = set.metadata.annotations.as_ref().unwrap()[ANNOTATION_DIGEST].clone();
    (template[names::ANNOTATION_RESTART].clone(), digest)
}

#[test]
fn only_what_needs_a_restart_changes_the_restart_annotation() {
    let before = marks(&full());
    let with = |path: &str, value: Value| {
        let mut spec = full();
        *spec.pointer_mut(path).unwrap() = value;
        marks(&spec).0 != before.0
    };
    assert!(with("/version", json!("7.2")));
    assert!(with("/resources/limits/memory", json!("2Gi")));
    assert!(with("/config/databases", json!("32")));
    assert!(!with("/config/slowlog-max-len", json!("512")));
    assert!(!with("/persistence/snapshots", json!([])));
    assert!(!with("/replicasPerShard", json!(2)));
    assert!(!with("/shards", json!(2)));
}

#[test]
fn the_engine_says_which_image_and_which_program_and_nothing_else_differs() {
    let template = |spec: Value| {
        let set = build(&resolved(&spec)).unwrap().stateful_sets[0].clone();
        let mut pod = serde_json::to_value(set.spec.unwrap().template.spec.unwrap()).unwrap();
        let redis = &mut pod["containers"][0];
        let image = redis["image"].take();
        let server = redis["env"].as_array_mut().unwrap().iter_mut().find(|one| one["name"] == "KUN_REDIS_SERVER");
        let server = server.unwrap()["value"].take();
        (image, server, pod)
    };
    let redis = template(json!({"version": "8.0"}));
    let valkey = template(json!({"engine": "Valkey", "version": "8.1"}));
    assert_eq!((redis.0, redis.1), (json!("docker.io/library/redis:8.0"), json!("redis-server")));
    assert_eq!((valkey.0, valkey.1), (json!("docker.io/valkey/valkey:8.1"), json!("valkey-server")));
    assert_eq!(redis.2, valkey.2);
}

#[test]
fn a_new_kun_image_is_rolled_out_without_restarting_anybody() {
    let mut resolved = resolved(&full());
    let digest = |resolved: &Resolved| {
        let set = build(resolved).unwrap().stateful_sets[0].clone();
        let annotations = set.spec.unwrap().template.metadata.unwrap().annotations.unwrap();
        (annotations[names::ANNOTATION_RESTART].clone(), set.metadata.annotations.unwrap()[ANNOTATION_DIGEST].clone())
    };
    let before = digest(&resolved);
    resolved.kun_image = "kun:2".to_owned();
    let after = digest(&resolved);
    assert_eq!(before.0, after.0);
    assert_ne!(before.1, after.1);
}

/// Before, a namespace with a quota of requests or limits took no pod of ours: its init container said nothing.
#[test]
fn every_container_of_a_member_says_the_resources_of_the_spec() {
    let template = build(&resolved(&full())).unwrap().stateful_sets.remove(0).spec.unwrap().template;
    let pod = template.spec.unwrap();
    let said = pod.init_containers.into_iter().flatten().chain(pod.containers);
    let said: Vec<(String, Value)> = said.map(|one| (one.name, json!(one.resources))).collect();
    let resources = full()["resources"].clone();
    assert_eq!(said, [("agent".to_owned(), resources.clone()), ("redis".to_owned(), resources)]);
    // The digest of before: what is said anew restarts no pod that runs.
    let annotations = template.metadata.unwrap().annotations.unwrap();
    assert_eq!(annotations[names::ANNOTATION_RESTART], "a2b8c6f8c8734f8d");
}

#[test]
fn no_child_names_an_owner_that_a_garbage_collector_could_miss() {
    let text = all(&resolved(&full())).to_string();
    assert!(!text.contains("ownerReferences"));
}

#[test]
fn a_password_is_nowhere_but_in_a_secret() {
    let mut objects = all(&resolved(&full()));
    objects.as_object_mut().unwrap().remove("secrets");
    let text = objects.to_string();
    for secret in ["s3cret", "private key"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[test]
fn pods_pass_pod_security_restricted() {
    let objects = build(&resolved(&full())).unwrap();
    let pod = objects.stateful_sets[0].spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    assert_eq!(pod.security_context.as_ref().unwrap().run_as_non_root, Some(true));
    for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
        let context = container.security_context.as_ref().unwrap();
        assert_eq!(context.allow_privilege_escalation, Some(false));
        assert_eq!(context.capabilities.as_ref().unwrap().drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(context.seccomp_profile.as_ref().unwrap().type_, "RuntimeDefault");
    }
    for volume in pod.volumes.iter().flatten() {
        assert!(volume.host_path.is_none(), "{}", volume.name);
    }
}

#[test]
fn a_cluster_without_replicas_has_no_disruption_budget_and_one_without_storage_no_claims() {
    let objects = build(&resolved(&json!({"shards": 2, "replicasPerShard": 0}))).unwrap();
    assert!(objects.budgets.is_empty());
    assert_eq!(objects.stateful_sets.len(), 2);
    let spec = objects.stateful_sets[1].spec.as_ref().unwrap();
    assert_eq!((spec.replicas, spec.volume_claim_templates.is_none()), (Some(1), true));
}

#[test]
fn how_strictly_members_are_kept_apart_is_said_to_the_scheduler_and_restarts_nobody() {
    let with = |spread: &str| {
        let mut spec = full();
        spec["placement"] = json!({ "spread": spread });
        build(&resolved(&spec)).unwrap().stateful_sets.remove(0)
    };
    let template = |set: &StatefulSet| set.spec.clone().unwrap().template;
    let affinity = |set: &StatefulSet| serde_json::to_value(template(set).spec.unwrap().affinity).unwrap();
    let term = json!({
        "labelSelector": {"matchLabels": {
            "app.kubernetes.io/managed-by": "kun", "app.kubernetes.io/name": "redis",
            "redis.kun.io/cluster": "orders", "redis.kun.io/shard": "0",
        }},
        "topologyKey": "kubernetes.io/hostname",
    });
    let [required, preferred, off] = ["Required", "Preferred", "Off"].map(with);
    let mut of_cluster = json!({"weight": 1, "podAffinityTerm": term});
    of_cluster["podAffinityTerm"]["labelSelector"]["matchLabels"].as_object_mut().unwrap().remove(names::LABEL_SHARD);
    let strict = json!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
        "preferredDuringSchedulingIgnoredDuringExecution": [of_cluster],
    }});
    assert_eq!(affinity(&required), strict);
    let weighted = json!([{"weight": 100, "podAffinityTerm": term}, of_cluster]);
    let mild = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}});
    assert_eq!(affinity(&preferred), mild);
    assert_eq!(affinity(&off), Value::Null);
    let kept = |set: &StatefulSet| {
        let PodTemplateSpec { metadata, spec } = template(set);
        stateful_set::is_kept_apart(&metadata.unwrap(), &spec.unwrap())
    };
    assert_eq!([kept(&required), kept(&preferred), kept(&off)], [true, false, false]);
    let said_nothing = build(&resolved(&full())).unwrap().stateful_sets.remove(0);
    // Of a cluster that says nothing of it the golden file has the whole template, restart annotation included.
    assert_eq!(template(&preferred), template(&said_nothing));
    let mark = |set: &StatefulSet| template(set).metadata.unwrap().annotations.unwrap();
    assert_eq!([mark(&required), mark(&off)], [mark(&preferred), mark(&preferred)]);
}

fn placed(placement: &Value) -> PodTemplateSpec {
    let mut spec = full();
    spec["placement"] = placement.clone();
    build(&resolved(&spec)).unwrap().stateful_sets.remove(0).spec.unwrap().template
}

/// Everything that may be said.
fn all_of_placement() -> Value {
    let cache = |weight: i32| {
        json!({"weight": weight, "podAffinityTerm": {
            "labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "kubernetes.io/hostname",
        }})
    };
    json!({
        "topologyKeys": ["topology.kubernetes.io/zone", "example.com/rack"],
        "nodeSelector": {"disk": "fast"},
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}],
            }},
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [cache(7)]},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [cache(1)["podAffinityTerm"]]},
        },
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "redis", "effect": "NoSchedule"}],
        "priorityClassName": "databases",
    })
}

#[test]
fn what_is_said_of_placement_stands_in_the_template_beside_what_keeps_members_apart() {
    let [required, preferred, off] = ["Required", "Preferred", "Off"].map(|spread| {
        let mut placement = all_of_placement();
        placement["spread"] = json!(spread);
        placed(&placement)
    });
    let bare = placed(&json!({})).spec.unwrap();
    for template in [&required, &preferred, &off] {
        let PodSpec { affinity: _, node_selector, tolerations, priority_class_name, .. } =
            template.spec.clone().unwrap();
        assert_eq!(json!(node_selector), json!({"disk": "fast"}));
        assert_eq!(json!(tolerations), all_of_placement()["tolerations"]);
        assert_eq!(priority_class_name.as_deref(), Some("databases"));
        let mut rest = template.spec.clone().unwrap();
        rest.affinity.clone_from(&bare.affinity);
        (rest.node_selector, rest.tolerations, rest.priority_class_name) = (None, None, None);
        assert_eq!(rest, bare, "nothing else of a pod differs");
    }
    let affinity = |template: &PodTemplateSpec| json!(template.spec.as_ref().unwrap().affinity);
    golden(
        "placement.json",
        &json!({
            "required": affinity(&required), "preferred": affinity(&preferred), "off": affinity(&off),
        }),
    );
}

#[test]
fn members_avoid_each_others_domains_as_strictly_as_nodes() {
    let keys = |placement: Value, list: &str| -> Vec<String> {
        let affinity = json!(placed(&placement).spec.unwrap().affinity);
        let terms = affinity["podAntiAffinity"][list].as_array().cloned().unwrap_or_default();
        let terms = terms.iter().map(|one| one.get("podAffinityTerm").unwrap_or(one));
        let of_shard = terms.filter(|term| term["labelSelector"]["matchLabels"].get(names::LABEL_SHARD).is_some());
        of_shard.map(|term| term["topologyKey"].as_str().unwrap().to_owned()).collect()
    };
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let (zone, node) = ("topology.kubernetes.io/zone", "kubernetes.io/hostname");
    for domains in [json!([zone]), json!([zone, node]), json!([node, zone])] {
        let with = |spread: &str| json!({"spread": spread, "topologyKeys": domains});
        assert_eq!(keys(with("Required"), required), [node, zone], "a node is a domain, named or not");
        assert_eq!(keys(with("Required"), preferred), Vec::<String>::new());
        assert_eq!(keys(with("Preferred"), preferred), [node, zone]);
        assert_eq!(keys(with("Preferred"), required), Vec::<String>::new());
        assert_eq!(json!(placed(&with("Off")).spec.unwrap().affinity), Value::Null);
    }
}

#[test]
fn a_change_of_placement_but_for_the_spread_restarts_and_other_words_for_the_same_do_not() {
    let mark = |placement: &Value| placed(placement).metadata.unwrap().annotations.unwrap();
    let silent = mark(&json!({}));
    let zone = "topology.kubernetes.io/zone";
    for field in ["topologyKeys", "nodeSelector", "affinity", "tolerations", "priorityClassName"] {
        let one = json!({ field: all_of_placement()[field] });
        assert_ne!(mark(&one), silent, "{field}");
        let mut strict = one.clone();
        strict["spread"] = json!("Required");
        assert_eq!(mark(&strict), mark(&one), "{field}");
    }
    let node = json!(["kubernetes.io/hostname"]);
    for same in [json!({"topologyKeys": node}), json!({"affinity": {}}), json!({"tolerations": [], "nodeSelector": {}})]
    {
        assert_eq!(mark(&same), silent, "{same}");
        assert_eq!(placed(&same), placed(&json!({})), "{same}");
    }
    assert_eq!(
        mark(&json!({"topologyKeys": [zone, "kubernetes.io/hostname"]})),
        mark(&json!({"topologyKeys": [zone]}))
    );
}

#[test]
fn a_term_of_the_user_is_not_taken_for_ours() {
    let kept = |placement: Value| {
        let PodTemplateSpec { metadata, spec } = placed(&placement);
        stateful_set::is_kept_apart(&metadata.unwrap(), &spec.unwrap())
    };
    assert!(!kept(all_of_placement()), "it keeps away from others' pods");
    let mut strict = all_of_placement();
    strict["spread"] = json!("Required");
    assert!(kept(strict));
}
