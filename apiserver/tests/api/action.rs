//! POST on `backup`, `failover` and `restart`.

use std::sync::Arc;

use apiserver::admission::{Admission, Attributes};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{Api, CLUSTERS, cluster, of_kind};

const ORDERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";
const OPERATIONS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisoperations";

/// A cluster whose three shards each have a synced replica.
async fn api() -> Api {
    furnished(Api::new().await).await
}

async fn furnished(api: Api) -> Api {
    let mut body = cluster("orders");
    body["spec"] = json!({"backup": {"target": {"directory": {"path": "/backups"}}}});
    api.post(CLUSTERS, &body).await.ok();
    let shard = |index: usize| {
        json!({"index": index, "primary": format!("orders-{index}-0"), "members": [
            {"pod": format!("orders-{index}-0"), "role": "Primary", "state": "Online"},
            {"pod": format!("orders-{index}-1"), "role": "Replica", "state": "Online"}]})
    };
    let status = json!({"status": {"phase": "Ready", "shards": [shard(0), shard(1), shard(2)]}});
    api.merge(&format!("{ORDERS}/status"), &status).await.ok();
    api
}

#[tokio::test]
async fn a_backup_is_recorded_with_its_cluster_and_who_asked() {
    let api = api().await;
    let reply =
        api.post(&format!("{ORDERS}/backup"), &json!({"kind": "RedisBackup", "apiVersion": "redis.kun.io/v1"})).await;
    assert_eq!(reply.code, 201);
    let record = reply.json();
    let name = record["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("orders-"), "{name}");
    assert_eq!(record["kind"], "RedisBackup");
    assert_eq!(record["metadata"]["labels"], json!({"redis.kun.io/cluster": "orders"}));
    assert_eq!(record["spec"], json!({"clusterName": "orders", "deletionPolicy": "Retain"}));
    assert_eq!(record["status"], json!({"phase": "Pending", "requestedBy": "anna", "verified": false}));
    assert_eq!(api.get(&format!("/apis/redis.kun.io/v1/namespaces/shop/redisbackups/{name}")).await.ok(), record);
}

#[tokio::test]
async fn a_client_cannot_say_who_asked() {
    let api = api().await;
    let body = json!({"metadata": {"name": "b"}, "status": {"phase": "Completed", "requestedBy": "root"}});
    let record = api.post(&format!("{ORDERS}/backup"), &body).await.ok();
    assert_eq!(
        (record["status"]["phase"].as_str(), record["status"]["requestedBy"].as_str()),
        (Some("Pending"), Some("anna"))
    );
    let body = json!({"metadata": {"name": "c"}, "spec": {"clusterName": "orders"}, "status": {"requestedBy": "root"}});
    let body = of_kind("RedisBackup", body);
    let record = api.post("/apis/redis.kun.io/v1/namespaces/shop/redisbackups", &body).await.ok();
    assert_eq!(record["status"]["requestedBy"], "anna");
}

#[tokio::test]
async fn a_backup_without_any_target_is_invalid() {
    let api = Api::new().await;
    api.cluster("orders").await;
    let (code, reason, message) = api.post(&format!("{ORDERS}/backup"), &json!({})).await.fault();
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    assert_eq!(
        message,
        "RedisBackup.redis.kun.io \"orders-\" is invalid: spec.target: Required value: the RedisCluster has no spec.backup.target, so \
         the backup must name one"
    );
    let with = json!({"spec": {"target": {"directory": {"path": "/b"}}}});
    assert_eq!(api.post(&format!("{ORDERS}/backup"), &with).await.code, 201);
    let sly = json!({"spec": {"target": {"directory": {"path": "/b/../etc"}}}});
    assert_eq!(api.post(&format!("{ORDERS}/backup"), &sly).await.fault().0, 422);
}

#[tokio::test]
async fn a_failover_is_recorded_and_a_second_one_waits() {
    let api = api().await;
    let body = json!({"spec": {"failover": {"shard": 1, "reason": "node drain"}}});
    let record = api.post(&format!("{ORDERS}/failover"), &body).await.ok();
    assert_eq!(
        record["spec"],
        json!({"clusterName": "orders", "cancel": false, "failover": {"shard": 1, "mode": "Coordinated", "reason": "node drain"}})
    );
    let name = record["metadata"]["name"].as_str().unwrap().to_owned();
    let reply = api.post(&format!("{ORDERS}/restart"), &json!({})).await;
    let message = format!(
        "Operation cannot be fulfilled on redisclusters.redis.kun.io \"orders\": operation \"{name}\" is Pending; one \
         operation runs at a time; wait for it, or cancel it: kubectl patch redisoperation {name} -n shop --type=merge -p \
         '{{\"spec\":{{\"cancel\":true}}}}'"
    );
    assert_eq!(reply.fault(), (409, "Conflict".into(), message));
    assert_eq!(reply.json()["details"]["retryAfterSeconds"], 5);
    assert_eq!(reply.headers["retry-after"], "5");
    api.merge(&format!("{OPERATIONS}/{name}/status"), &json!({"status": {"phase": "Succeeded"}})).await.ok();
    assert_eq!(api.post(&format!("{ORDERS}/restart"), &json!({})).await.code, 201);
}

#[tokio::test]
async fn a_failover_that_cannot_be_done_is_refused_with_the_numbers() {
    let api = api().await;
    let send = |failover: Value| {
        let api = &api;
        async move { api.post(&format!("{ORDERS}/failover"), &json!({"spec": {"failover": failover}})).await.fault() }
    };
    let head = "RedisOperation.redis.kun.io \"orders-\" is invalid: ";
    assert_eq!(
        send(json!({"shard": 7})).await,
        (
            422,
            "Invalid".into(),
            format!("{head}spec.failover.shard: Invalid value: 7: must be from 0 to 2: the cluster has 3 shards")
        )
    );
    assert_eq!(
        send(json!({"shard": 0, "candidate": "users-0-1"})).await.2,
        format!(
            "{head}spec.failover.candidate: Invalid value: \"users-0-1\": is no member of shard 0; its members are orders-0-0, orders-0-1"
        )
    );
    let patch = json!({"status": {"shards": [{"index": 0, "primary": "orders-0-0", "members": [
        {"pod": "orders-0-0", "role": "Primary", "state": "Online"}, {"pod": "orders-0-1", "role": "Replica", "state": "Syncing"}]}]}});
    api.merge(&format!("{ORDERS}/status"), &patch).await.ok();
    assert_eq!(
        send(json!({"shard": 0})).await,
        (
            409,
            "Conflict".into(),
            "Operation cannot be fulfilled on redisclusters.redis.kun.io \"orders\": shard 0 has no synced replica to \
             promote: orders-0-0 is Online, orders-0-1 is Syncing"
                .into()
        )
    );
    assert_eq!(api.get(OPERATIONS).await.ok()["items"], json!([]));
}

/// Before, the webhook answered 400 in the words of its parser, and a misspelt shard was the first one.
#[tokio::test]
async fn an_action_is_judged_by_the_schema_as_a_plain_create_is() {
    let api = api().await;
    for (failover, cause) in [
        (
            json!({"shard": 0, "mode": "Takeover"}),
            "spec.failover.mode: Unsupported value: \"Takeover\": supported values: \"Coordinated\", \"Force\"",
        ),
        (
            json!({"shard": "0"}),
            "spec.failover.shard: Invalid value: \"string\": spec.failover.shard in body must be of type integer: \"string\"",
        ),
        (
            json!({"shard": -1}),
            "spec.failover.shard: Invalid value: -1: must be from 0 to 999: shards are counted from 0",
        ),
        (json!({"shrad": 1}), "spec.failover.shard: Required value"),
        (json!({}), "spec.failover.shard: Required value"),
    ] {
        let of_action = api.post(&format!("{ORDERS}/failover"), &json!({"spec": {"failover": failover}})).await;
        let of_plain =
            api.post(OPERATIONS, &plain("one", &json!({"clusterName": "orders", "failover": failover}))).await;
        for (reply, name) in [(&of_action, "orders-"), (&of_plain, "one")] {
            let message = format!("RedisOperation.redis.kun.io \"{name}\" is invalid: {cause}");
            assert_eq!(reply.fault(), (422, "Invalid".into(), message));
        }
        assert_eq!(of_action.json()["details"]["causes"], of_plain.json()["details"]["causes"]);
    }
    let none = api.post(&format!("{ORDERS}/restart"), &json!({"spec": {"restart": {"shards": "all"}}})).await.fault();
    assert_eq!((none.0, none.1.as_str()), (422, "Invalid"));
    let target = json!({"spec": {"target": {"directory": {"path": 7}}}});
    assert_eq!(api.post(&format!("{ORDERS}/backup"), &target).await.fault().0, 422);
    assert_eq!(api.get(OPERATIONS).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_dry_run_checks_everything_and_records_nothing() {
    let api = api().await;
    let body = json!({"spec": {"failover": {"shard": 1}}});
    assert_eq!(api.post(&format!("{ORDERS}/failover?dryRun=All"), &body).await.code, 201);
    assert_eq!(api.get(OPERATIONS).await.ok()["items"], json!([]));
    let body = json!({"spec": {"failover": {"shard": 9}}});
    assert_eq!(api.post(&format!("{ORDERS}/failover?dryRun=All"), &body).await.code, 422);
}

#[tokio::test]
async fn an_action_needs_a_living_parent_that_is_the_one_meant() {
    let api = api().await;
    let none = api.post(&format!("{CLUSTERS}/none/backup"), &json!({})).await.fault();
    assert_eq!((none.0, none.2.as_str()), (404, "redisclusters.redis.kun.io \"none\" not found"));
    let stale = api.post(&format!("{ORDERS}/backup"), &json!({"metadata": {"resourceVersion": "1"}})).await.fault();
    assert!(stale.0 == 409 && stale.2.contains("ResourceVersion in precondition: 1"), "{stale:?}");
    let other = api.post(&format!("{ORDERS}/backup"), &json!({"metadata": {"uid": "x"}})).await.fault();
    assert!(other.0 == 409 && other.2.contains("UID in precondition: x"), "{other:?}");
    let live = api.get(ORDERS).await.ok();
    let right =
        json!({"metadata": {"uid": live["metadata"]["uid"], "resourceVersion": live["metadata"]["resourceVersion"]}});
    assert_eq!(api.post(&format!("{ORDERS}/backup"), &right).await.code, 201);
    let wrong = api.post(&format!("{ORDERS}/backup"), &json!({"spec": {"clusterName": "users"}})).await.fault();
    assert!(wrong.0 == 422 && wrong.2.contains("spec.clusterName"), "{wrong:?}");
    api.merge(ORDERS, &json!({"metadata": {"finalizers": ["a.io/b"]}})).await.ok();
    api.delete(ORDERS).await.ok();
    let dying = api.post(&format!("{ORDERS}/backup"), &json!({})).await.fault();
    assert_eq!(dying.0, 409);
    assert!(dying.2.ends_with("the RedisCluster is being deleted"), "{}", dying.2);
}

#[tokio::test]
async fn actions_are_only_created() {
    let api = api().await;
    for action in ["backup", "failover", "restart"] {
        let uri = format!("{ORDERS}/{action}");
        assert_eq!(api.get(&uri).await.fault().0, 405, "{action}");
        assert_eq!(api.delete(&uri).await.fault().0, 405, "{action}");
        assert_eq!(api.post(&uri, &json!({"kind": "Pod"})).await.fault().0, 400, "{action}");
    }
    assert_eq!(api.post(&format!("{ORDERS}/rebalance"), &json!({})).await.fault().0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_failovers_at_once_one_is_recorded() {
    let api = std::sync::Arc::new(api().await);
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let api = std::sync::Arc::clone(&api);
            tokio::spawn(async move {
                api.post(&format!("{ORDERS}/failover"), &json!({"spec": {"failover": {"shard": 0}}})).await.code
            })
        })
        .collect();
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(task.await.unwrap());
    }
    codes.sort_unstable();
    assert_eq!((codes[0], codes[1..].iter().all(|code| *code == 409)), (201, true), "{codes:?}");
}

fn plain(name: &str, spec: &Value) -> Value {
    of_kind("RedisOperation", json!({"metadata": {"name": name}, "spec": spec}))
}

#[tokio::test]
async fn a_plain_record_is_refused_in_the_words_of_the_action() {
    let api = api().await;
    let failover = |shard: i32| json!({"clusterName": "orders", "failover": {"shard": shard}});
    api.post(OPERATIONS, &plain("first", &failover(0))).await.ok();
    let of_action = api.post(&format!("{ORDERS}/failover"), &json!({"spec": {"failover": {"shard": 1}}})).await;
    let of_plain = api.post(OPERATIONS, &plain("second", &failover(1))).await;
    let message = "Operation cannot be fulfilled on redisclusters.redis.kun.io \"orders\": operation \"first\" is Pending; one \
                   operation runs at a time; wait for it, or cancel it: kubectl patch redisoperation first -n shop --type=merge -p \
                   '{\"spec\":{\"cancel\":true}}'";
    for reply in [of_action, of_plain] {
        assert_eq!(reply.fault(), (409, "Conflict".into(), message.to_owned()));
        assert_eq!(reply.headers["retry-after"], "5");
    }
    let restart = json!({"clusterName": "orders", "restart": {}});
    assert_eq!(api.post(&format!("{OPERATIONS}?dryRun=All"), &plain("second", &restart)).await.fault().0, 409);
    // What is wrong in itself comes before what is only wrong now; a name that is taken is taken; others are nobody's business.
    assert_eq!(api.post(OPERATIONS, &plain("second", &json!({"clusterName": "orders"}))).await.fault().0, 422);
    assert_eq!(api.post(OPERATIONS, &plain("first", &failover(1))).await.fault().1, "AlreadyExists");
    let elsewhere = json!({"clusterName": "users", "restart": {}});
    assert_eq!(api.post(OPERATIONS, &plain("other", &elsewhere)).await.code, 201);
    api.merge(&format!("{OPERATIONS}/first/status"), &json!({"status": {"phase": "Succeeded"}})).await.ok();
    assert_eq!(api.post(OPERATIONS, &plain("second", &failover(1))).await.code, 201);
}

#[tokio::test]
async fn an_operation_that_is_applied_waits_for_its_turn_as_one_that_is_created() {
    let api = api().await;
    api.post(&format!("{ORDERS}/restart"), &json!({})).await.ok();
    let applied = plain("second", &json!({"clusterName": "orders", "failover": {"shard": 1}}));
    let uri = format!("{OPERATIONS}/second?fieldManager=gitops");
    let apply = api.call("PATCH", &uri).header("content-type", "application/apply-patch+yaml");
    let reply = apply.body(applied.to_string()).send().await;
    assert_eq!(reply.fault().0, 409);
    assert_eq!(api.get(&format!("{OPERATIONS}/second")).await.fault().0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_operations_at_once_one_is_recorded_whichever_way_they_come() {
    let api = std::sync::Arc::new(api().await);
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let api = std::sync::Arc::clone(&api);
            tokio::spawn(async move {
                if number % 2 == 0 {
                    let spec = json!({"clusterName": "orders", "failover": {"shard": 0}});
                    api.post(OPERATIONS, &plain(&format!("one-{number}"), &spec)).await.code
                } else {
                    api.post(&format!("{ORDERS}/restart"), &json!({})).await.code
                }
            })
        })
        .collect();
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(task.await.unwrap());
    }
    codes.sort_unstable();
    assert_eq!((codes[0], codes[1..].iter().all(|code| *code == 409)), (201, true), "{codes:?}");
}

/// An admission that takes its time over records named `slow`.
#[derive(Default)]
struct Slow {
    asked: Notify,
    answered: Notify,
}

impl Admission for Slow {
    fn mutate<'a>(&'a self, _: &'a Attributes, object: Value) -> BoxFuture<'a, apiserver::error::Result<Value>> {
        Box::pin(async move { Ok(object) })
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, apiserver::error::Result<()>> {
        Box::pin(async move {
            if attributes.name == "slow" {
                self.asked.notify_one();
                self.answered.notified().await;
            }
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_slow_admission_of_one_operation_holds_up_no_other_and_is_late_itself() {
    let slow = Arc::new(Slow::default());
    let api = furnished(Api::with(Arc::clone(&slow) as Arc<dyn Admission>).await).await;
    let restart = |cluster: &str| json!({"clusterName": cluster, "restart": {}});
    let (uri, body) = (format!("{ORDERS}/restart"), json!({"metadata": {"name": "slow"}}));
    let late = async {
        let of_action = api.post(&uri, &body).await;
        let of_plain = api.post(OPERATIONS, &plain("slow", &restart("orders"))).await;
        (of_action.fault().0, of_plain.fault().0)
    };
    let others = async {
        slow.asked.notified().await;
        let quick = api.post(OPERATIONS, &plain("quick", &restart("orders"))).await.code;
        let elsewhere = api.post(OPERATIONS, &plain("other", &restart("users"))).await.code;
        slow.answered.notify_one();
        (quick, elsewhere)
    };
    let both = async { tokio::join!(late, others) };
    let found =
        tokio::time::timeout(hung::process(), both).await.expect("somebody waits for somebody else's admission");
    assert_eq!(found, ((409, 409), (201, 201)));
    let items = api.get(OPERATIONS).await.ok()["items"].clone();
    let names: Vec<&Value> = items.as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, ["other", "quick"]);
}
