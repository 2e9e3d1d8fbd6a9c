//! What the webhook decides about changes of a RedisCluster.

use crate::asking::{a_careful_spec, a_cluster, a_review, ask, created, denial, updated, with_cluster};
use serde_json::{Value, json};
use webhook::{Facts, Stage, decide::Objection, review};

/// Three shards of 1 GiB (maxmemory 768 MiB) that hold 1.5 GiB in 1000 keys.
fn holding() -> (Value, Value) {
    let spec = json!({"shards": 3, "resources": {"limits": {"memory": "1Gi"}}});
    let status = json!({"phase": "Ready", "keys": 1000, "usedMemory": 1_610_612_736, "maxMemory": 805_306_368, "version": "7.0.15"});
    (spec, status)
}

fn with(base: &Value, changes: &Value) -> Value {
    let mut spec = base.clone();
    for (name, value) in changes.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

#[test]
fn a_fine_cluster_is_allowed_without_a_word() {
    let verdict = created(&a_careful_spec(), &Facts::default());
    assert_eq!(verdict, webhook::decide::Verdict::default());
}

#[test]
fn all_faults_of_a_new_cluster_are_told_at_once() {
    let verdict = created(&json!({"shards": 2, "version": "6.0", "config": {"dir": "/etc"}}), &Facts::default());
    let paths: Vec<String> = verdict.denial.as_ref().unwrap().faults().map(|fault| fault.path.to_string()).collect();
    assert_eq!(paths, ["spec.shards", "spec.version", "spec.config[dir]"]);
    assert_eq!(verdict.denial.unwrap().objection(), Objection::Invalid);
}

#[test]
fn an_immutable_field_and_a_downgrade_are_refused() {
    let verdict = updated(
        &json!({"version": "7.2"}),
        &json!({"version": "7.0", "mode": "Standalone"}),
        &Value::Null,
        &Facts::default(),
    );
    let text = denial(&verdict);
    assert!(text.contains("spec.mode: Invalid value: \"Standalone\": is immutable"), "{text}");
    assert!(text.contains("spec.version: Invalid value: \"7.0\": must not go below 7.2"), "{text}");
}

#[test]
fn an_engine_stays_and_its_versions_are_its_own() {
    let update = |old: &Value, new: &Value| denial(&updated(old, new, &Value::Null, &Facts::default()));
    let valkey = |version: &str| json!({"engine": "Valkey", "version": version});
    assert_eq!(
        update(&json!({}), &valkey("8.1")),
        "spec.engine: Invalid value: \"Valkey\": is immutable: it is Redis, and its files are not for another engine"
    );
    assert_eq!(update(&valkey("8.1"), &valkey("9")), "");
    assert_eq!(
        update(&valkey("9"), &valkey("8.1")),
        "spec.version: Invalid value: \"8.1\": must not go below 9, the version of the present spec: Valkey does not read files of a later minor version"
    );
    assert_eq!(
        denial(&created(&json!({"version": "9"}), &Facts::default())),
        "spec.version: Invalid value: \"9\": must be in the range >=7.0, <9 with engine Redis"
    );
    assert_eq!(
        denial(&created(&valkey("7.2"), &Facts::default())),
        "spec.version: Invalid value: \"7.2\": must be in the range >=8.0, <9.2 with engine Valkey"
    );
}

#[test]
fn a_rollout_that_never_got_anywhere_may_go_back() {
    let (spec, mut status) = holding();
    status["phase"] = json!("Updating");
    let next = with(&spec, &json!({"version": "8.0"}));
    let back = |status: &Value| updated(&next, &with(&spec, &json!({"version": "7.0"})), status, &Facts::default());
    assert!(!back(&status).is_allowed());
    status["highestVersion"] = json!("7.0.15");
    assert!(back(&status).is_allowed(), "{}", denial(&back(&status)));
    status["highestVersion"] = json!("8.0.2");
    assert!(!back(&status).is_allowed());
}

#[test]
fn a_size_that_no_volume_was_given_may_be_taken_back() {
    let (spec, mut status) = holding();
    let size = |size: &str| with(&spec, &json!({"storage": {"size": size}}));
    let back = |status: &Value| updated(&size("2Gi"), &size("1Gi"), status, &Facts::default());
    assert!(!back(&status).is_allowed());
    status["volumeSize"] = json!("1Gi");
    assert!(back(&status).is_allowed(), "{}", denial(&back(&status)));
    status["volumeSize"] = json!("2Gi");
    assert!(!back(&status).is_allowed());
}

#[test]
fn a_scale_in_of_data_that_is_only_partly_known_waits_for_the_rest() {
    let (spec, mut status) = holding();
    let five = with(&spec, &json!({"shards": 5}));
    status["usedMemory"] = json!(1 << 20);
    let condition = |value: &str| json!([{"type": "Available", "status": value, "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "X", "message": "m"}]);
    status["conditions"] = condition("False");
    let verdict = updated(&five, &spec, &status, &Facts::default());
    assert_eq!(verdict.denial.unwrap().objection(), Objection::Unknown);
    status["conditions"] = condition("True");
    assert!(updated(&five, &spec, &status, &Facts::default()).is_allowed());
}

/// Its figures decide what is safe. That the controller's own writes are not judged is a condition of the registration.
#[test]
fn nobody_but_the_controller_writes_a_status() {
    let (spec, mut status) = holding();
    let cluster = |status: &Value| json!({"metadata": {"name": "orders"}, "spec": spec, "status": status});
    let before = cluster(&status);
    status["usedMemory"] = json!(1);
    let verdict = ask("UPDATE", "redisclusters/status", &cluster(&status), &before, &Facts::default());
    assert_eq!(
        denial(&verdict),
        "status: Forbidden: it is written by KUN's controller alone: what may be done is judged by what it says"
    );
    assert_eq!(verdict.denial.unwrap().objection(), Objection::Forbidden);
    assert!(ask("UPDATE", "redispolicies/status", &json!({}), &json!({}), &Facts::default()).is_allowed());
}

#[test]
fn a_scale_in_that_would_not_fit_is_refused_with_the_numbers() {
    let (spec, mut status) = holding();
    let spec = with(&spec, &json!({"shards": 5}));
    status["usedMemory"] = json!(3_006_477_107_u64); // 2.8 GiB
    let verdict = updated(&spec, &with(&spec, &json!({"shards": 3})), &status, &Facts::default());
    assert_eq!(
        denial(&verdict),
        "spec.shards: Forbidden: the data set of 2868Mi with 10% headroom needs 3154Mi, but 3 shards of 768Mi hold 2304Mi; at least 5 shards are needed"
    );
    let verdict = updated(&spec, &with(&spec, &json!({"shards": 6})), &status, &Facts::default());
    assert!(verdict.is_allowed());
}

#[test]
fn a_scale_in_that_fits_is_allowed() {
    let (spec, mut status) = holding();
    status["usedMemory"] = json!(1 << 30);
    let five = with(&spec, &json!({"shards": 5}));
    assert!(updated(&five, &spec, &status, &Facts::default()).is_allowed());
}

#[test]
fn a_scale_in_of_data_that_was_not_measured_waits_for_the_measurement() {
    let (spec, _) = holding();
    let five = with(&spec, &json!({"shards": 5}));
    let verdict = updated(&five, &spec, &json!({"phase": "Ready"}), &Facts::default());
    assert_eq!(verdict.denial.unwrap().objection(), Objection::Unknown);
    assert!(updated(&five, &spec, &json!({"phase": "Creating"}), &Facts::default()).is_allowed());
    assert!(updated(&five, &spec, &Value::Null, &Facts::default()).is_allowed());
}

#[test]
fn less_memory_than_the_data_set_needs_is_refused_and_a_cache_is_only_warned() {
    let (spec, status) = holding();
    let less = with(&spec, &json!({"memory": {"maxBytes": "512Mi"}}));
    let text = denial(&updated(&spec, &less, &status, &Facts::default()));
    assert!(text.starts_with("spec.memory: Forbidden: the data set of 1536Mi"), "{text}");
    let cache = with(&spec, &json!({"memory": {"maxBytes": "512Mi", "policy": "allkeys-lru"}}));
    let verdict = updated(&spec, &cache, &status, &Facts::default());
    assert!(verdict.is_allowed());
    assert!(verdict.warnings[0].ends_with("keys will be evicted"), "{:?}", verdict.warnings);
}

/// Before, only the sum was compared: the fullest shard would not have come back in what was left to it.
#[test]
fn no_shard_is_left_less_memory_than_it_holds_by_itself() {
    let (spec, mut status) = holding();
    let five = with(&spec, &json!({"shards": 5}));
    status["usedMemory"] = json!(900_u64 << 20);
    let shard = |index: i32, mebibytes: u64| json!({"index": index, "usedMemory": mebibytes << 20});
    status["shards"] = json!([shard(0, 100), shard(1, 700), shard(2, 100), shard(7, 760)]);
    let asked = |old: &Value, changes: &Value| denial(&updated(old, &with(old, changes), &status, &Facts::default()));
    let half = json!({"maxBytes": "512Mi"});
    let why = "Forbidden: shard 1 holds 700Mi and with 10% headroom needs 770Mi, but each shard may hold";
    assert_eq!(asked(&spec, &json!({"memory": half})), format!("spec.memory: {why} 512Mi"));
    assert_eq!(asked(&spec, &json!({"memory": half, "shards": 6})), format!("spec.memory: {why} 512Mi"));
    assert_eq!(asked(&five, &json!({"shards": 3})), format!("spec.shards: {why} 768Mi"));
    // What is on a shard that leaves is spread over the others; and one that has as much as before needs no more.
    let eight = with(&spec, &json!({"shards": 8}));
    assert_eq!(asked(&eight, &json!({"shards": 4, "memory": {"maxBytes": "770Mi"}})), "");
    assert_eq!(asked(&spec, &json!({"shards": 4})), "");
}

#[test]
fn more_room_is_always_allowed_even_if_it_is_not_enough_yet() {
    let (spec, mut status) = holding();
    status["usedMemory"] = json!(10_u64 << 30);
    let verdict = updated(&spec, &with(&spec, &json!({"shards": 4})), &status, &Facts::default());
    assert!(verdict.is_allowed(), "{}", denial(&verdict));
}

#[test]
fn persistence_is_not_taken_from_a_cluster_that_holds_data() {
    let (spec, mut status) = holding();
    let off = with(&spec, &json!({"persistence": {"appendOnly": "Off"}}));
    assert_eq!(
        denial(&updated(&spec, &off, &status, &Facts::default())),
        "spec.persistence: Forbidden: the cluster holds 1000 keys that would no longer be written to disk; keep an append-only file or a snapshot that is due within 86400 seconds and 1000000 writes"
    );
    let snapshots =
        with(&spec, &json!({"persistence": {"appendOnly": "Off", "snapshots": [{"seconds": 60, "changes": 1}]}}));
    assert!(updated(&spec, &snapshots, &status, &Facts::default()).is_allowed());
    status["keys"] = json!(0);
    assert!(updated(&spec, &off, &status, &Facts::default()).is_allowed());
}

/// Before, a cluster whose keys were all on the shard that was away was empty, and lost its files when that came back.
#[test]
fn a_cluster_is_empty_only_where_every_shard_has_been_counted() {
    let (spec, mut status) = holding();
    let of = |snapshots: &Value| with(&spec, &json!({"persistence": {"appendOnly": "Off", "snapshots": snapshots}}));
    let (off, rare) = (of(&json!([])), of(&json!([{"seconds": 604_800, "changes": 1}])));
    let refused = |old: &Value, status: &Value| updated(old, &off, status, &Facts::default()).denial;
    assert_eq!(refused(&rare, &status).unwrap().objection(), Objection::Invalid);
    status["keys"] = json!(0);
    let condition = |value: &str| json!([{"type": "Available", "status": value, "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "X", "message": "m"}]);
    status["conditions"] = condition("False");
    let told = updated(&spec, &off, &status, &Facts::default());
    assert_eq!(
        denial(&told),
        "spec.persistence: Forbidden: not every shard's keys have been counted, so it is not known that the cluster is empty; try again when it is \
         available"
    );
    assert_eq!(told.denial.unwrap().objection(), Objection::Unknown);
    status["conditions"] = condition("True");
    assert_eq!([refused(&spec, &status), refused(&rare, &status)], [None, None]);
}

#[test]
fn two_disruptive_changes_in_one_update_are_refused() {
    let (spec, status) = holding();
    let both = with(&spec, &json!({"shards": 5, "version": "7.2", "config": {"databases": "1"}}));
    let verdict = updated(&spec, &both, &status, &Facts::default());
    assert_eq!(
        denial(&verdict),
        "spec.version: Forbidden: changing shards moves data and changing spec.version, spec.config restarts every member; make one change, wait for Ready, then the other"
    );
    assert_eq!(verdict.denial.unwrap().objection(), Objection::Conflict);
    let live = with(&spec, &json!({"shards": 5, "config": {"maxclients": "500"}}));
    assert!(updated(&spec, &live, &status, &Facts::default()).is_allowed());
    assert!(updated(&spec, &both, &json!({"phase": "Creating"}), &Facts::default()).is_allowed());
}

/// Of an update clients take a 409 for a version that is too old: kubectl scale tries again for five minutes, and says nothing.
#[test]
fn an_update_that_has_to_wait_is_forbidden_and_no_conflict() {
    let (spec, status) = holding();
    let both = with(&spec, &json!({"shards": 5, "version": "7.2"}));
    let [old, new] = [&spec, &both].map(|spec| a_cluster(spec, &status));
    let body = serde_json::to_vec(&a_review("UPDATE", "redisclusters", &new, &old)).unwrap();
    let request = review::read(&body, Stage::Validate).unwrap();
    let verdict = webhook::decide(&request, &Facts::default());
    assert_eq!(verdict.denial.as_ref().map(webhook::decide::Denial::objection), Some(Objection::Conflict));
    let answer: Value = serde_json::from_slice(&review::write(&request, &verdict).unwrap()).unwrap();
    let status = &answer["response"]["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(403), &json!("Forbidden")));
}

#[test]
fn a_reshard_is_not_joined_by_a_rollout_or_by_another_reshard() {
    let (spec, mut status) = holding();
    let five = with(&spec, &json!({"shards": 5}));
    status["phase"] = json!("Scaling");
    status["plan"] = json!({"steps": ["move"], "slotsLeft": 2100});
    let text = denial(&updated(&five, &with(&five, &json!({"version": "7.2"})), &status, &Facts::default()));
    let expected = "spec.version: Forbidden: would restart members while 2100 hash slots are still moving to make 5 shards; wait for Ready, or stop it with spec.migration.paused";
    assert_eq!(text, expected);
    let text = denial(&updated(&five, &with(&five, &json!({"shards": 6})), &status, &Facts::default()));
    assert!(text.starts_with("spec.shards: Forbidden: 2100 hash slots are still moving to make 5 shards"), "{text}");
    status["plan"] = json!({"steps": ["move"], "slotsLeft": 2100, "waiting": "orders-4-1 is not in sync yet"});
    assert!(!updated(&five, &with(&five, &json!({"shards": 4})), &status, &Facts::default()).is_allowed());
    status["plan"] = json!({"slotsLeft": 2100, "waiting": "slot 5 holds a key of 600Mi, above maxKeyBytes"});
    assert!(updated(&five, &with(&five, &json!({"shards": 4})), &status, &Facts::default()).is_allowed());
}

#[test]
fn how_strictly_members_are_kept_apart_may_change_at_any_time() {
    let (spec, mut status) = holding();
    let strict = |spec: &Value| with(spec, &json!({"placement": {"spread": "Required"}}));
    let five = with(&spec, &json!({"shards": 5}));
    assert!(
        updated(&spec, &strict(&five), &status, &Facts::default()).is_allowed(),
        "it restarts only who shares a node"
    );
    status["phase"] = json!("Scaling");
    status["plan"] = json!({"steps": ["move"], "slotsLeft": 2100});
    assert!(updated(&five, &strict(&five), &status, &Facts::default()).is_allowed());
    assert!(updated(&strict(&five), &five, &status, &Facts::default()).is_allowed());
}

#[test]
fn where_else_pods_may_run_restarts_every_member_and_is_not_joined_by_a_reshard() {
    let (spec, mut status) = holding();
    let five = with(&spec, &json!({"shards": 5}));
    for placement in [
        json!({"topologyKeys": ["topology.kubernetes.io/zone"]}),
        json!({"nodeSelector": {"disk": "fast"}}),
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}],
        }}}}),
        json!({"tolerations": [{"operator": "Exists"}]}),
        json!({"priorityClassName": "databases"}),
    ] {
        let placed = |spec: &Value| with(spec, &json!({"placement": placement}));
        assert!(updated(&spec, &placed(&spec), &status, &Facts::default()).is_allowed(), "{placement}");
        assert_eq!(
            denial(&updated(&spec, &placed(&five), &status, &Facts::default())),
            "spec.placement: Forbidden: changing shards moves data and changing spec.placement restarts every member; make one change, wait for Ready, then the other",
            "{placement}"
        );
    }
    let secret = with(&five, &json!({"auth": {"secretName": "mine"}}));
    assert!(
        denial(&updated(&spec, &secret, &status, &Facts::default()))
            .starts_with("spec.auth.secretName: Forbidden: changing shards")
    );
    // Said in other words it is the same.
    let same = with(&five, &json!({"placement": {"topologyKeys": ["kubernetes.io/hostname"], "affinity": {}}}));
    assert!(updated(&spec, &same, &status, &Facts::default()).is_allowed());
    status["phase"] = json!("Scaling");
    status["plan"] = json!({"steps": ["move"], "slotsLeft": 2100});
    let fast = with(&five, &json!({"placement": {"nodeSelector": {"disk": "fast"}}}));
    assert_eq!(
        denial(&updated(&five, &fast, &status, &Facts::default())),
        "spec.placement: Forbidden: would restart members while 2100 hash slots are still moving to make 5 shards; wait for Ready, or stop it with spec.migration.paused"
    );
}

#[test]
fn a_rollout_is_not_joined_by_a_reshard() {
    let (spec, mut status) = holding();
    status["phase"] = json!("Updating");
    let five = with(&spec, &json!({"shards": 5}));
    let text = denial(&updated(&spec, &five, &status, &Facts::default()));
    assert_eq!(
        text,
        "spec.shards: Forbidden: would move data while members are being restarted on a new template; wait for Ready"
    );
    status["phase"] = json!("Ready");
    let next = with(&spec, &json!({"version": "7.2"}));
    let text = denial(&updated(&next, &with(&next, &json!({"shards": 5})), &status, &Facts::default()));
    assert!(text.contains("members are being restarted to go from version 7.0.15 to 7.2"), "{text}");
    assert!(updated(&next, &with(&next, &json!({"version": "7.4"})), &status, &Facts::default()).is_allowed());
}

#[test]
fn the_repair_of_a_sick_cluster_gets_through_with_a_warning() {
    let (spec, mut status) = holding();
    status["phase"] = json!("Updating");
    status["conditions"] = json!([{"type": "Available", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "X", "message": "2 of 3 shards serve"}]);
    let bigger = with(&spec, &json!({"shards": 5, "resources": {"limits": {"memory": "2Gi"}}}));
    let verdict = updated(&spec, &bigger, &status, &Facts::default());
    assert!(verdict.is_allowed(), "{}", denial(&verdict));
    assert!(
        verdict.warnings[0].ends_with("(accepted because the cluster is not available: 2 of 3 shards serve)"),
        "{:?}",
        verdict.warnings
    );
}

#[test]
fn a_fault_that_was_there_before_is_a_warning_and_a_new_one_a_refusal() {
    let old = json!({"shards": 2, "config": {"hz": "10"}});
    let verdict = updated(&old, &json!({"shards": 2, "config": {"hz": "20"}}), &Value::Null, &Facts::default());
    assert!(verdict.is_allowed());
    assert!(verdict.warnings[0].ends_with("(as before)"));
    assert!(
        !updated(&old, &json!({"shards": 1, "config": {"hz": "10"}}), &Value::Null, &Facts::default()).is_allowed()
    );
    assert!(updated(&old, &json!({"shards": 3}), &Value::Null, &Facts::default()).is_allowed());
}

#[test]
fn scaling_is_judged_against_the_live_cluster() {
    let scale = |replicas: i32| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "orders"}, "spec": {"replicas": replicas}});
    let (spec, mut status) = holding();
    let spec = with(&spec, &json!({"shards": 5}));
    status["usedMemory"] = json!(3_006_477_107_u64);
    let facts = with_cluster(Facts::default(), "orders", &a_cluster(&spec, &status));
    let asked = |to: i32| ask("UPDATE", "redisclusters/scale", &scale(to), &scale(5), &facts);
    assert!(denial(&asked(3)).starts_with("spec.replicas: Forbidden: the data set of 2868Mi"), "{}", denial(&asked(3)));
    assert!(denial(&asked(2)).contains("spec.replicas: Invalid value: 2: must be from 3 to 1000"));
    assert!(asked(5).is_allowed());
    assert!(asked(7).is_allowed());
}

#[test]
fn scaling_in_a_cluster_that_is_not_known_yet_waits_and_scaling_out_does_not() {
    let scale =
        |replicas: i32| json!({"kind": "Scale", "metadata": {"name": "orders"}, "spec": {"replicas": replicas}});
    let asked = |from: i32, to: i32| ask("UPDATE", "redisclusters/scale", &scale(to), &scale(from), &Facts::default());
    assert_eq!(asked(5, 3).denial.unwrap().objection(), Objection::Unknown);
    assert!(asked(3, 5).is_allowed());
}

#[test]
fn only_a_protected_cluster_is_kept_from_deletion() {
    let delete =
        |spec: &Value| ask("DELETE", "redisclusters", &Value::Null, &a_cluster(spec, &Value::Null), &Facts::default());
    assert!(delete(&json!({"shards": 1})).is_allowed());
    let verdict = delete(&json!({"deletion": {"protected": true}}));
    assert!(denial(&verdict).contains("set spec.deletion.protected to false first"));
    assert_eq!(verdict.denial.unwrap().objection(), Objection::Forbidden);
}

#[test]
fn a_cluster_that_is_being_deleted_is_never_held_up() {
    let mut old = a_cluster(&json!({"deletion": {"protected": true}}), &Value::Null);
    old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut new = old.clone();
    new["spec"]["shards"] = json!(1);
    assert!(ask("UPDATE", "redisclusters", &new, &old, &Facts::default()).is_allowed());
}
