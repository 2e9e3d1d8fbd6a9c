//! What a former cluster of the same name left behind, and a new one that would not use it.

use crate::asking::{
    a_careful_spec, a_cluster, a_review, ask, created, denial, with_claim, with_claim_made, with_cluster,
};
use serde_json::{Value, json};
use webhook::{Facts, Stage, decide::Objection, facts::Claim, review};

/// Five shards of two members were deleted, their volumes are there.
fn five_shards() -> Facts {
    let members = (0..5).flat_map(|shard| [(shard, 0), (shard, 1)]);
    members.fold(Facts::default(), |facts, (shard, ordinal)| with_claim(facts, "orders", shard, ordinal))
}

fn with(changes: &Value) -> Value {
    let mut spec = a_careful_spec();
    for (name, value) in changes.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

#[test]
fn a_cluster_that_leaves_out_shards_whose_volumes_exist_is_refused() {
    let verdict = created(&with(&json!({"shards": 3})), &five_shards());
    assert_eq!(
        denial(&verdict),
        "spec.shards: Forbidden: volumes of shards 3 and 4 of a former cluster of this name exist and may hold slots: create it with shards: 5; \
         or, if nothing on them is wanted, delete these claims: data-orders-3-0, data-orders-3-1, data-orders-4-0, data-orders-4-1 (kubectl \
         delete pvc -n shop -l 'redis.kun.io/cluster=orders,redis.kun.io/shard in (3,4)')"
    );
    assert_eq!(verdict.denial.as_ref().map(webhook::decide::Denial::objection), Some(Objection::Leftover));
    // They may be gone in a moment.
    assert!(verdict.hangs_on_unknown());
    let alone = created(&with(&json!({"mode": "Standalone"})), &five_shards());
    let text = denial(&alone);
    assert!(
        text.contains("volumes of shards 1, 2, 3 and 4 of a former") && text.contains("mode: Cluster and shards: 5;"),
        "{text}"
    );
    assert!(text.contains("data-orders-3-1 and 2 more (kubectl"), "{text}");
}

/// Of a 409 a server-side apply says that other managers have the fields, and advises --force-conflicts, also where it creates.
#[test]
fn a_cluster_that_is_refused_for_what_is_left_is_forbidden_and_no_conflict() {
    let cluster = a_cluster(&with(&json!({"shards": 3})), &Value::Null);
    let body = serde_json::to_vec(&a_review("CREATE", "redisclusters", &cluster, &Value::Null)).unwrap();
    let request = review::read(&body, Stage::Validate).unwrap();
    let verdict = webhook::decide(&request, &five_shards());
    let answer: Value = serde_json::from_slice(&review::write(&request, &verdict).unwrap()).unwrap();
    let status = &answer["response"]["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(403), &json!("Forbidden")));
}

#[test]
fn volumes_that_are_used_again_or_are_of_others_are_in_nobodys_way() {
    let fine = |spec: &Value, facts: &Facts| assert_eq!(created(spec, facts), webhook::decide::Verdict::default());
    fine(&with(&json!({"shards": 5})), &five_shards());
    fine(&with(&json!({"shards": 6})), &five_shards());
    fine(&with(&json!({"shards": 3})), &with_claim(Facts::default(), "carts", 4, 0));
    let metadata = |name: &str, labels: Value, more: Value| {
        let mut metadata = json!({"name": name, "labels": labels});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Claim::of(&serde_json::from_value(metadata).unwrap())
    };
    let labels = json!({"redis.kun.io/cluster": "orders", "redis.kun.io/shard": "3"});
    let found = Claim { cluster: "orders".to_owned(), shard: 3, ordinal: 1, made: None };
    assert_eq!(metadata("data-orders-3-1", labels.clone(), json!({})), Some(found));
    // Somebody else's that only bears the labels, one without them, one that is on its way out.
    assert_eq!(metadata("mine-3-1", labels.clone(), json!({})), None);
    assert_eq!(metadata("data-orders-3-1", json!({}), json!({})), None);
    assert_eq!(metadata("data-orders-3-1", labels, json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})), None);
}

#[test]
fn a_recovered_cluster_has_scaled_away_what_lies_beyond_its_shards() {
    let mut object = a_cluster(&with(&json!({"shards": 3})), &Value::Null);
    object["metadata"]["generation"] = json!(2);
    let verdict = ask("CREATE", "redisclusters", &object, &Value::Null, &five_shards());
    assert_eq!(verdict, webhook::decide::Verdict::default());
    object["metadata"]["generation"] = json!(1);
    assert!(!ask("CREATE", "redisclusters", &object, &Value::Null, &five_shards()).is_allowed());
}

#[test]
fn a_cluster_that_is_there_already_has_no_former_ones_volumes() {
    let mut there = a_cluster(&with(&json!({"shards": 5})), &Value::Null);
    for leaving in [Value::Null, json!("2026-01-01T00:00:00Z")] {
        there["metadata"]["deletionTimestamp"] = leaving;
        let facts = with_cluster(five_shards(), "orders", &there);
        for again in [json!({"shards": 3}), json!({"shards": 3, "storage": null})] {
            let verdict = created(&with(&again), &facts);
            let told = verdict.warnings.iter().any(|text| text.contains("former"));
            assert_eq!((denial(&verdict), told), (String::new(), false), "{again}");
            // It may have been deleted a moment ago: that is waited for, and no longer.
            assert_eq!(verdict.hangs_on_unknown(), again.get("storage").is_none(), "{again}");
        }
    }
}

#[test]
fn volumes_that_stay_unused_are_told() {
    let warnings = |spec: &Value| {
        let verdict = created(spec, &five_shards());
        assert!(verdict.is_allowed(), "{}", denial(&verdict));
        verdict.warnings
    };
    let told = warnings(&with(&json!({"shards": 5, "replicasPerShard": 0})));
    assert_eq!(
        told[0],
        "spec.replicasPerShard: volumes of a former cluster of this name stay unused, one may be of its last primary: data-orders-0-1, \
         data-orders-1-1, data-orders-2-1, data-orders-3-1, data-orders-4-1"
    );
    let told = warnings(&with(&json!({"shards": 3, "storage": null})));
    assert_eq!(
        told[0],
        "spec.storage: volumes of a former cluster of this name stay unused: data-orders-0-0, data-orders-0-1, data-orders-1-0, \
         data-orders-1-1, data-orders-2-0, data-orders-2-1 and 4 more"
    );
}

#[test]
fn volumes_that_a_change_to_delete_takes_are_named() {
    let of = |retain: &str| with(&json!({"shards": 3, "storage": {"size": "10Gi", "retain": retain}}));
    let object = |spec: &Value| {
        let mut object = a_cluster(spec, &Value::Null);
        object["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
        object
    };
    let facts = with_claim_made(five_shards(), "orders", 3, 1, "2026-01-01T00:00:00Z");
    let changed =
        |old: &Value, new: &Value| ask("UPDATE", "redisclusters", &object(new), &object(old), &facts).warnings;
    let (kept, deleted) = (of("Retain"), of("Delete"));
    let named = "data-orders-3-0, data-orders-4-0, data-orders-4-1";
    let text = "spec.storage.retain: with Delete the volumes of members that were scaled away are deleted";
    assert_eq!(changed(&kept, &deleted), [format!("{text}: {named}")]);
    assert_eq!([changed(&deleted, &kept), changed(&deleted, &deleted)], [const { Vec::<String>::new() }; 2]);
}

/// Before, five were created as the refusal asks for, and made three before anybody had looked at the others' volumes.
#[test]
fn shards_whose_volumes_nobody_has_seen_are_not_scaled_away() {
    let former = (0..5)
        .fold(Facts::default(), |facts, shard| with_claim_made(facts, "orders", shard, 0, "2026-01-01T00:00:00Z"));
    let own = (0..5)
        .fold(Facts::default(), |facts, shard| with_claim_made(facts, "orders", shard, 0, "2026-01-03T00:00:00Z"));
    let object = |changes: &Value, status: &Value| {
        let mut object = a_cluster(&with(changes), status);
        object["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
        object
    };
    let changed = |to: &Value, status: &Value, facts: &Facts| {
        let five = json!({"shards": 5, "resources": null});
        let verdict = ask("UPDATE", "redisclusters", &object(to, status), &object(&five, status), facts);
        (denial(&verdict), verdict.denial.as_ref().map(webhook::decide::Denial::objection))
    };
    let available = json!([{"type": "Available", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z", "reason": "X", "message": "m"}]);
    let early = [
        Value::Null,
        json!({"phase": "Creating"}),
        json!({"phase": "Paused"}),
        // It was paused, or its specification was not usable, before anybody looked.
        json!({"phase": "Healing"}),
        json!({"phase": "Degraded"}),
    ];
    let seen = [json!({"phase": "Paused", "conditions": available}), json!({"phase": "Healing", "hasServed": true})];
    let three = json!({"shards": 3, "resources": null});
    let why = "spec.shards: Forbidden: volumes of shards 3 and 4 are older than this cluster, and what is on them has not been seen yet: scale it \
               in once it is available. Only if they are of a former cluster of this name and nobody wants what is on them, delete these claims \
               instead: data-orders-3-0, data-orders-4-0";
    for status in &early {
        assert_eq!(changed(&three, status, &former), (why.to_owned(), Some(Objection::Leftover)), "{status}");
        assert_eq!(changed(&three, status, &own), (String::new(), None), "{status}");
    }
    for status in &seen {
        assert_eq!(changed(&three, status, &former), (String::new(), None), "{status}");
    }
}

/// What is being loaded has not been measured, and is not nothing.
#[test]
fn a_cluster_that_loads_a_former_ones_volumes_is_not_known_empty() {
    let former = with_claim_made(Facts::default(), "orders", 0, 0, "2026-01-01T00:00:00Z");
    let own = with_claim_made(Facts::default(), "orders", 0, 0, "2026-01-03T00:00:00Z");
    let less = with(&json!({"memory": {"maxBytes": "512Mi"}}));
    let changed = |status: &Value, facts: &Facts| {
        let object = |spec: &Value| {
            let mut object = a_cluster(spec, status);
            object["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
            object
        };
        let verdict = ask("UPDATE", "redisclusters", &object(&less), &object(&a_careful_spec()), facts);
        verdict.denial.as_ref().map(webhook::decide::Denial::objection)
    };
    for status in [Value::Null, json!({"phase": "Creating"})] {
        assert_eq!([changed(&status, &former), changed(&status, &own)], [Some(Objection::Unknown), None], "{status}");
    }
}
