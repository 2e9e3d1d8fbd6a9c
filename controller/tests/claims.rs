//! Claims that have the names of members' claims, and are somebody else's.

use controller::delete::{kept, sweep_claims};
use serde_json::{Value, json};

use crate::kubernetes::{Scene, cluster};

fn claim(name: &str, metadata: &Value) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": {"resources": {"requests": {"storage": "1Gi"}}},
    });
    claim["metadata"]["name"] = json!(name);
    claim["metadata"]["namespace"] = json!("shop");
    claim
}

fn of(cluster: &str, shard: u16) -> Value {
    json!({"labels": {"redis.kun.io/cluster": cluster, "redis.kun.io/shard": shard.to_string()}})
}

fn spec(shards: u16, size: &str) -> Value {
    json!({"shards": shards, "storage": {"size": size, "retain": "Delete"}})
}

/// Before, the StatefulSet was made, and Kubernetes gave its pod the volume of whoever had made the claim.
#[tokio::test]
async fn no_member_is_made_that_would_get_somebody_elses_volume() {
    let scene = Scene::new(&spec(3, "1Gi"));
    scene.memory.put("persistentvolumeclaims", claim("data-orders-1-0", &json!({"labels": {"app": "postgres"}})));
    let applied = scene.apply().await.unwrap();
    let why = "StatefulSet orders-1 gets no new member: there is a PersistentVolumeClaim data-orders-1-0, which no RedisCluster has made, \
               and its member would use that volume. Delete the claim; or, if it holds what this cluster is to have, give it the labels \
               redis.kun.io/cluster=orders and redis.kun.io/shard=1; or call the RedisCluster otherwise";
    assert_eq!(
        (applied.refused, scene.memory.names("statefulsets")),
        (vec![why.to_owned()], names(["orders-0", "orders-2"]))
    );
    scene.memory.put("persistentvolumeclaims", claim("data-orders-1-0", &of("orders", 1)));
    assert_eq!(scene.apply().await.unwrap().refused, Vec::<String>::new());
    assert_eq!(scene.memory.names("statefulsets"), names(["orders-0", "orders-1", "orders-2"]));
}

#[tokio::test]
async fn what_an_earlier_cluster_of_this_name_left_behind_is_taken_over() {
    let scene = Scene::new(&spec(2, "1Gi"));
    for (name, shard) in [("data-orders-0-0", 0), ("data-orders-1-0", 1), ("data-orders-1-1", 1)] {
        scene.memory.put("persistentvolumeclaims", claim(name, &of("orders", shard)));
    }
    assert_eq!(scene.apply().await.unwrap().refused, Vec::<String>::new());
    assert_eq!(scene.memory.names("statefulsets"), names(["orders-0", "orders-1"]));
}

#[tokio::test]
async fn a_shard_does_not_grow_into_somebody_elses_volume_and_is_else_kept() {
    let scene = Scene::new(&json!({"shards": 1, "replicasPerShard": 1, "storage": {"size": "1Gi"}}));
    scene.apply().await.unwrap();
    scene.memory.put("persistentvolumeclaims", claim("data-orders-0-2", &of("carts", 0)));
    let limits = json!({"limits": {"memory": "1Gi"}});
    let larger = json!({"shards": 1, "replicasPerShard": 2, "storage": {"size": "1Gi"}, "resources": limits});
    scene.memory.put("redisclusters", cluster(&larger));
    let applied = scene.apply().await.unwrap();
    assert!(
        applied.refused[0].contains("data-orders-0-2, which is of the RedisCluster carts"),
        "{:?}",
        applied.refused
    );
    let set = scene.memory.get("statefulsets", "orders-0").unwrap();
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&set["spec"]["replicas"], &container["resources"]["limits"]["memory"]), (&json!(2), &json!("1Gi")));
}

/// Before, whatever carried the labels grew, and was deleted with the shard that it named.
#[tokio::test]
async fn a_claim_that_something_else_owns_is_neither_grown_nor_deleted() {
    let scene = Scene::new(&spec(1, "2Gi"));
    scene.apply().await.unwrap();
    let mut owned = of("orders", 4);
    owned["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "VirtualMachine", "name": "x", "uid": "u"}]);
    for (name, metadata) in
        [("scratch", &of("orders", 0)), ("data-orders-4-0", &owned), ("data-orders-5-0", &of("orders", 5))]
    {
        scene.memory.put("persistentvolumeclaims", claim(name, metadata));
    }
    scene.memory.take_writes();
    scene.apply().await.unwrap();
    assert_eq!(scene.memory.take_writes(), ["PATCH persistentvolumeclaims/data-orders-5-0"]);
    sweep_claims(&scene.memory.kubernetes(), &scene.gathered(), &scene.resolved()).await.unwrap();
    assert_eq!(scene.memory.names("persistentvolumeclaims"), names(["data-orders-4-0", "scratch"]));
}

/// Before, a cluster that came back with fewer members deleted what the former one may have written last.
#[tokio::test]
async fn what_a_former_cluster_left_and_nobody_mounts_is_not_deleted() {
    let made = |at: &str, shard: u16| {
        let mut metadata = of("orders", shard);
        metadata["creationTimestamp"] = json!(at);
        metadata
    };
    let (former, own) = ("2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z");
    let left = [("data-orders-0-0", former, 0), ("data-orders-0-1", former, 0), ("data-orders-1-0", former, 1)];
    let retained = json!({"shards": 1, "replicasPerShard": 0, "storage": {"size": "1Gi", "retain": "Delete"}});
    let told = |claims: &str| Some(format!("kept: {claims}, Secret orders-auth, Secret orders-internal"));
    let beyond = "PersistentVolumeClaim data-orders-0-1, PersistentVolumeClaim data-orders-1-0";
    let all = "PersistentVolumeClaim data-orders-0-0, PersistentVolumeClaim data-orders-0-1, PersistentVolumeClaim data-orders-1-0";
    // Without storage nothing of it is the cluster's own.
    for (spec, says) in [(retained, told(beyond)), (json!({"shards": 1, "replicasPerShard": 0}), told(all))] {
        let scene = Scene::new(&spec);
        let mut object = cluster(&spec);
        object["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
        scene.memory.put("redisclusters", object);
        scene.apply().await.unwrap();
        for (name, at, shard) in left.into_iter().chain([("data-orders-0-2", own, 0)]) {
            scene.memory.put("persistentvolumeclaims", claim(name, &made(at, shard)));
        }
        sweep_claims(&scene.memory.kubernetes(), &scene.gathered(), &scene.resolved()).await.unwrap();
        assert_eq!(scene.memory.names("persistentvolumeclaims"), names(left.map(|(name, _, _)| name)));
        assert_eq!(kept(&scene.gathered()), says);
    }
}

fn names<const N: usize>(all: [&str; N]) -> Vec<String> {
    all.map(str::to_owned).into()
}
