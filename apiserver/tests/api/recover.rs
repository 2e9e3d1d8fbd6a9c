//! POST on `recover`: an object that the store has lost comes back as the same object.

use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS, cluster};

const ORDERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";
const UID: &str = "5ae0b8e2-0000-4000-8000-000000000001";

fn recover() -> String {
    format!("{ORDERS}/recover")
}

/// What a StatefulSet says of its owner.
fn record(uid: &str, generation: i64, spec: &Value) -> Value {
    let mut record = cluster("orders");
    record["metadata"]["uid"] = json!(uid);
    record["metadata"]["generation"] = json!(generation);
    record["metadata"]["labels"] = json!({"team": "a"});
    record["spec"] = spec.clone();
    record
}

fn identity(object: &Value) -> (Value, Value) {
    (object["metadata"]["uid"].clone(), object["metadata"]["generation"].clone())
}

#[tokio::test]
async fn an_object_that_is_not_there_is_made_with_its_uid_and_generation() {
    let api = Api::new().await;
    let reply = api.post(&recover(), &record(UID, 7, &json!({"shards": 5}))).await;
    assert_eq!(reply.code, 201);
    let made = reply.json();
    assert_eq!(identity(&made), (json!(UID), json!(7)));
    assert_eq!((&made["spec"]["shards"], &made["spec"]["mode"]), (&json!(5), &json!("Cluster")), "with its defaults");
    assert_eq!(made["metadata"]["labels"], json!({"team": "a"}));
    assert_eq!(api.get(ORDERS).await.ok(), made);
    // It is an object like any other.
    let changed = api.merge(ORDERS, &json!({"spec": {"shards": 6}})).await.ok();
    assert_eq!(identity(&changed), (json!(UID), json!(8)));
    api.delete(ORDERS).await.ok();
    assert_eq!(api.get(ORDERS).await.code, 404);
}

#[tokio::test]
async fn an_older_state_of_it_is_brought_forward_and_nothing_but_its_specification() {
    let api = Api::new().await;
    let old = api.post(&recover(), &record(UID, 3, &json!({"shards": 3}))).await.ok();
    api.merge(ORDERS, &json!({"metadata": {"labels": {"team": "b"}}})).await.ok();
    let mut newer = record(UID, 7, &json!({"shards": 5}));
    newer["metadata"]["annotations"] = json!({"from": "the record"});
    let reply = api.post(&recover(), &newer).await;
    assert_eq!(reply.code, 200);
    let brought = reply.json();
    assert_eq!((identity(&brought), &brought["spec"]["shards"]), ((json!(UID), json!(7)), &json!(5)));
    assert_eq!(brought["metadata"]["labels"], json!({"team": "b"}));
    assert_eq!(brought["metadata"].get("annotations"), None);
    assert_eq!(brought["metadata"]["creationTimestamp"], old["metadata"]["creationTimestamp"]);
    // The same specification at a later generation: the generation alone.
    let same = api.post(&recover(), &record(UID, 9, &json!({"shards": 5}))).await.ok();
    assert_eq!((identity(&same), &same["spec"]), ((json!(UID), json!(9)), &brought["spec"]));
}

#[tokio::test]
async fn what_is_not_older_and_what_is_another_object_is_not_touched() {
    let api = Api::new().await;
    let made = api.post(&recover(), &record(UID, 7, &json!({"shards": 5}))).await.ok();
    for generation in [7, 6] {
        let (code, reason, message) = api.post(&recover(), &record(UID, generation, &json!({}))).await.fault();
        assert_eq!((code, reason.as_str()), (409, "Conflict"));
        let why = format!("it is at generation 7, which is not older than {generation}: there is nothing to recover");
        assert!(message.ends_with(&why), "{message}");
    }
    let other = "5ae0b8e2-0000-4000-8000-000000000002";
    let (code, reason, message) = api.post(&recover(), &record(other, 9, &json!({}))).await.fault();
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    let why = format!("another object has this name: its UID is {UID}, the one to be recovered had {other}");
    assert!(message.ends_with(&why), "{message}");
    assert_eq!(api.get(ORDERS).await.ok(), made);
}

#[tokio::test]
async fn everything_is_checked_as_in_a_create_and_a_dry_run_does_nothing() {
    let api = Api::new().await;
    let dry = format!("{}?dryRun=All", recover());
    assert_eq!(identity(&api.post(&dry, &record(UID, 7, &json!({}))).await.ok()), (json!(UID), json!(7)));
    assert_eq!(api.get(ORDERS).await.code, 404);
    let wrong = [
        (record("", 7, &json!({})), "metadata.uid: Required value"),
        (record("u1", 7, &json!({})), "metadata.uid: Invalid value: \"u1\": must be a UUID"),
        (record(UID, 0, &json!({})), "metadata.generation: Invalid value: 0"),
        (record(UID, i64::MAX, &json!({})), "metadata.generation: Invalid value: 9223372036854775807"),
        (record(UID, 7, &json!({"shards": 0})), "spec.shards: Invalid value: 0"),
    ];
    for (body, why) in wrong {
        let (code, reason, message) = api.post(&recover(), &body).await.fault();
        assert_eq!((code, reason.as_str()), (422, "Invalid"), "{message}");
        assert!(message.contains(why), "{message}");
    }
    let mut other = record(UID, 7, &json!({}));
    other["metadata"]["name"] = json!("users");
    assert_eq!(api.post(&recover(), &other).await.fault().0, 400);
    assert_eq!(api.get(ORDERS).await.code, 404);

    api.post(&recover(), &record(UID, 3, &json!({"shards": 3}))).await.ok();
    assert_eq!(api.post(&recover(), &record(UID, i64::MAX, &json!({}))).await.code, 422);
    let brought = api.post(&dry, &record(UID, 7, &json!({"shards": 5}))).await.ok();
    assert_eq!((identity(&brought), &brought["spec"]["shards"]), ((json!(UID), json!(7)), &json!(5)));
    assert_eq!(identity(&api.get(ORDERS).await.ok()), (json!(UID), json!(3)));
}

#[tokio::test]
async fn an_ordinary_create_cannot_choose_who_it_is() {
    let api = Api::new().await;
    let made = api.post(CLUSTERS, &record(UID, 7, &json!({}))).await.ok();
    assert_eq!(made["metadata"]["generation"], 1);
    assert_ne!(made["metadata"]["uid"], UID);
    for verb in [api.get(&recover()).await, api.put(&recover(), &made).await, api.delete(&recover()).await] {
        assert_eq!(verb.code, 405);
    }
}
