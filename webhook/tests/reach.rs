//! Which rights a request needs of its author.

use crate::asking::{a_cluster, a_review};
use serde_json::{Value, json};
use webhook::{Stage, decide::reach, review};

/// The rights as `field: verb resource namespace/name`.
fn rights(stage: Stage, operation: &str, object: &Value, old: &Value) -> Vec<String> {
    let resource = if object["kind"] == "RedisBackup" { "redisbackups" } else { "redisclusters" };
    let body = a_review(operation, resource, object, old).to_string();
    let request = review::read(body.as_bytes(), stage).unwrap();
    assert_eq!(request.author.username, "anna");
    let shown = |right: reach::Right| {
        let place = right.namespace.map_or_else(|| "*".to_owned(), |namespace| format!("{namespace}/{}", right.value));
        format!("{}: {} {} {place}", right.path, right.verb, right.resource)
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
        [secret, "spec.backup.target.persistentVolumeClaim.claimName: get persistentvolumeclaims shop/vault"]
    );
    assert_eq!(
        rights(Stage::Validate, "CREATE", &naming("mine", &directory), &Value::Null),
        [secret, "spec.backup.target.directory.path: create persistentvolumes *"]
    );
    let backup = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisBackup", "metadata": {"name": "one"},
        "spec": {"clusterName": "orders", "target": claim}});
    assert_eq!(
        rights(Stage::Validate, "CREATE", &backup, &Value::Null),
        ["spec.target.persistentVolumeClaim.claimName: get persistentvolumeclaims shop/vault"]
    );
    assert_eq!(rights(Stage::Validate, "CREATE", &a_cluster(&json!({}), &Value::Null), &Value::Null), [""; 0]);
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
