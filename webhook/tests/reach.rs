//! Which rights a request needs of its author.

use crate::asking::{a_cluster, a_review};
use serde_json::{Value, json};
use webhook::{Stage, decide::reach, review};

/// The rights as `field: verb resource namespace/name`.
fn rights(stage: Stage, operation: &str, object: &Value, old: &Value) -> Vec<String> {
    let resource = match object["kind"].as_str() {
        Some("RedisBackup") => "redisbackups",
        Some("RedisOperation") => "redisoperations",
        _ => "redisclusters",
    };
    let body = a_review(operation, resource, object, old).to_string();
    let request = review::read(body.as_bytes(), stage).unwrap();
    assert_eq!(request.author.username, "anna");
    let shown = |right: reach::Right| {
        let name = right.name.unwrap_or_else(|| "*".to_owned());
        let place = right.namespace.map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"));
        let what = [Some(right.group), Some(right.resource), right.subresource].into_iter().flatten();
        let what: Vec<&str> = what.filter(|part| !part.is_empty()).collect();
        format!("{}: {} {} {place}", right.path, right.verb, what.join("/"))
    };
    reach::rights(&request).into_iter().map(shown).collect()
}

fn naming(secret: &str, target: &Value) -> Value {
    a_cluster(&json!({"auth": {"secretName": secret}, "backup": {"target": target}}), &Value::Null)
}

#[test]
fn what_a_new_object_names_needs_its_authors_right() {
    let claim = json!({"persistentVolumeClaim": {"claimName": "vault"}});
    let directory = json!({"directory": {"path": "/srv/backups"}});
    let secret = "spec.auth.secretName: get secrets shop/mine";
    assert_eq!(
        rights(Stage::Validate, "CREATE", &naming("mine", &claim), &Value::Null),
        [
            secret,
            "spec.backup.target.persistentVolumeClaim.claimName: get persistentvolumeclaims shop/vault",
            "spec.backup.target.persistentVolumeClaim.claimName: create pods shop/*",
        ]
    );
    assert_eq!(
        rights(Stage::Validate, "CREATE", &naming("mine", &directory), &Value::Null),
        [secret, "spec.backup.target.directory.path: create persistentvolumes *"]
    );
    let backup = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisBackup", "metadata": {"name": "one"},
        "spec": {"clusterName": "orders", "target": claim}});
    assert_eq!(
        rights(Stage::Validate, "CREATE", &backup, &Value::Null),
        [
            "spec.target.persistentVolumeClaim.claimName: get persistentvolumeclaims shop/vault",
            "spec.target.persistentVolumeClaim.claimName: create pods shop/*",
            "spec: create redis.kun.io/redisclusters/backup shop/orders",
        ]
    );
    assert_eq!(rights(Stage::Validate, "CREATE", &a_cluster(&json!({}), &Value::Null), &Value::Null), [""; 0]);
}

/// Before, whoever could change the record had what was to stay erased, on claims and directories that they could not get at.
#[test]
fn to_have_erased_what_was_to_stay_needs_the_rights_to_where_it_lies() {
    let backup = |policy: &str, target: &Value, stored: &Value| {
        let mut spec = json!({"clusterName": "orders", "deletionPolicy": policy});
        if !target.is_null() {
            spec["target"] = target.clone();
        }
        let status = if stored.is_null() { json!({}) } else { json!({"phase": "Completed", "target": stored}) };
        json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisBackup", "metadata": {"name": "one"}, "spec": spec, "status": status})
    };
    let changed = |from: &str, to: &str, target: &Value, stored: &Value| {
        rights(Stage::Validate, "UPDATE", &backup(to, target, stored), &backup(from, target, stored))
    };
    let claim = json!({"persistentVolumeClaim": {"claimName": "vault"}});
    let directory = json!({"directory": {"path": "/srv/backups"}});
    let act = "spec.deletionPolicy: create redis.kun.io/redisclusters/backup shop/orders";
    let on_claim =
        ["spec.deletionPolicy: get persistentvolumeclaims shop/vault", "spec.deletionPolicy: create pods shop/*", act];
    let in_directory = ["spec.deletionPolicy: create persistentvolumes *", act];
    assert_eq!(changed("Retain", "Delete", &claim, &claim), on_claim);
    assert_eq!(changed("Retain", "Delete", &claim, &Value::Null), on_claim, "nothing is stored yet");
    assert_eq!(changed("Retain", "Delete", &Value::Null, &directory), in_directory, "the target of the cluster");
    assert_eq!(changed("Retain", "Delete", &Value::Null, &Value::Null), [act]);
    for (from, to) in [("Delete", "Delete"), ("Delete", "Retain"), ("Retain", "Retain")] {
        assert_eq!(changed(from, to, &claim, &claim), [""; 0], "{from} to {to}");
    }
}

/// Before, whoever could create the record could do what its subresource forbade them.
#[test]
fn the_record_of_an_action_needs_the_right_to_its_subresource() {
    let operation = |spec: Value| {
        let mut spec = spec;
        spec["clusterName"] = json!("orders");
        json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisOperation", "metadata": {"name": "one"}, "spec": spec})
    };
    let [failover, restart] = [json!({"failover": {"shard": 0}}), json!({"restart": {}})].map(operation);
    let asked = |object: &Value, old: &Value| {
        rights(Stage::Validate, if old.is_null() { "CREATE" } else { "UPDATE" }, object, old)
    };
    let to = |action: &str| format!("spec.{action}: create redis.kun.io/redisclusters/{action} shop/orders");
    assert_eq!(asked(&failover, &Value::Null), [to("failover")]);
    assert_eq!(asked(&restart, &Value::Null), [to("restart")]);
    assert_eq!(asked(&restart, &failover), [to("restart")]);
    let mut cancelled = restart.clone();
    cancelled["spec"]["cancel"] = json!(true);
    assert_eq!(asked(&cancelled, &restart), [""; 0]);
}

/// Before, whoever could write the object had members run an image of theirs, which read a Secret that somebody else had named.
#[test]
fn an_image_that_is_to_run_beside_a_secret_needs_the_right_to_that() {
    let running = |image: Option<&str>| {
        let mut spec = json!({"auth": {"secretName": "mine"}});
        if let Some(image) = image {
            spec["image"] = json!(image);
        }
        a_cluster(&spec, &Value::Null)
    };
    let (default, one, other) = (running(None), running(Some("a/redis:7.0")), running(Some("b/redis:7.0")));
    let asked = |object: &Value, old: &Value| rights(Stage::Validate, "UPDATE", object, old);
    let needed = ["spec.image: get secrets shop/mine"];
    assert_eq!(asked(&one, &default), needed);
    assert_eq!(asked(&other, &one), needed);
    assert_eq!((asked(&one, &one), asked(&default, &one)), (vec![], vec![]));
    let unnamed = a_cluster(&json!({"image": "a/redis:7.0"}), &Value::Null);
    assert_eq!(asked(&unnamed, &default), [""; 0], "the password of the cluster itself is whose the cluster is");
}

#[test]
fn only_what_a_change_names_anew_is_asked_about() {
    let to = |path: &str| naming("mine", &json!({"directory": {"path": path}}));
    let (old, same, other) = (to("/srv/a"), to("/srv/a"), to("/srv/b"));
    assert_eq!(rights(Stage::Validate, "UPDATE", &same, &old), [""; 0]);
    assert_eq!(
        rights(Stage::Validate, "UPDATE", &other, &old),
        ["spec.backup.target.directory.path: create persistentvolumes *"]
    );
    assert_eq!(rights(Stage::Mutate, "UPDATE", &other, &old), [""; 0], "asked once, when the object is final");
    assert_eq!(rights(Stage::Validate, "DELETE", &Value::Null, &old), [""; 0]);
    let mut leaving = other;
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(rights(Stage::Validate, "UPDATE", &leaving, &old), [""; 0], "what leaves reaches nothing more");
}
