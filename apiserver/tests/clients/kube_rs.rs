//! What a Rust controller does: typed clients, informers in both modes, conflicts.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy, WatchEvent, WatchParams},
    core::PartialObjectMeta,
    runtime::{reflector, watcher},
};
use serde_json::json;
use types::RedisCluster;

use crate::{clock::Clock, site::Site};

fn cluster(name: &str) -> RedisCluster {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {}})).unwrap()
}

#[tokio::test]
async fn typed_objects_are_made_read_replaced_patched_and_deleted() {
    let site = Site::start().await;
    let api: Api<RedisCluster> = Api::namespaced(site.client().await, "shop");
    let mut made = api.create(&PostParams::default(), &cluster("orders")).await.unwrap();
    assert_eq!((made.spec.shards, made.metadata.generation), (Some(3), Some(1)));
    let stale = made.clone();
    made.spec.shards = Some(5);
    let replaced = api.replace("orders", &PostParams::default(), &made).await.unwrap();
    assert_eq!((replaced.spec.shards, replaced.metadata.generation), (Some(5), Some(2)));
    let refused = api.replace("orders", &PostParams::default(), &stale).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict"),
        "{refused:?}"
    );
    let patch = json!({"status": {"replicas": 5, "phase": "Ready"}});
    let patched = api.patch_status("orders", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(patched.status.map(|status| status.replicas), Some(5));
    let scale = api.get_scale("orders").await.unwrap();
    assert_eq!(
        (scale.spec.and_then(|spec| spec.replicas), scale.status.map(|status| status.replicas)),
        (Some(5), Some(5))
    );
    let apply = Patch::Apply(json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "spec": {"shards": 7}}));
    let conflict = api.patch("orders", &PatchParams::apply("test"), &apply).await.unwrap_err();
    assert!(
        matches!(&conflict, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict"),
        "{conflict:?}"
    );
    let applied = api.patch("orders", &PatchParams::apply("test").force(), &apply).await.unwrap();
    assert_eq!((applied.spec.shards, applied.metadata.generation), (Some(7), Some(3)));
    let options = DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    assert!(api.delete("orders", &options).await.unwrap().right().is_some_and(|status| status.is_success()));
    let absent = api.get("orders").await.unwrap_err();
    assert!(matches!(&absent, kube::Error::Api(status) if status.is_not_found()), "{absent:?}");
    assert!(api.get_opt("orders").await.unwrap().is_none());
}

/// Runs an informer until its store holds exactly the named objects.
async fn informed(api: Api<RedisCluster>, config: watcher::Config) {
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &cluster(name)).await.unwrap();
    }
    let (reader, writer) = reflector::store();
    let stream = reflector::reflector(writer, watcher(api.clone(), config));
    let follow = tokio::spawn(async move { stream.for_each(|event| async { drop(event.unwrap()) }).await });
    reader.wait_until_ready().await.unwrap();
    let names =
        || reader.state().iter().map(|object| (object.name_any(), object.spec.shards)).collect::<BTreeMap<_, _>>();
    let of = |list: &[(&str, i32)]| list.iter().map(|(name, shards)| ((*name).to_owned(), Some(*shards))).collect();
    assert_eq!(names(), of(&[("a", 3), ("b", 3), ("c", 3)]));
    api.delete("b", &DeleteParams::default()).await.unwrap();
    api.patch("c", &PatchParams::default(), &Patch::Merge(json!({"spec": {"shards": 7}}))).await.unwrap();
    api.create(&PostParams::default(), &cluster("d")).await.unwrap();
    let expected: BTreeMap<String, Option<i32>> = of(&[("a", 3), ("c", 7), ("d", 3)]);
    let caught_up = async {
        while names() != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(hung::answer(), caught_up).await.expect("the informer sees every change");
    follow.abort();
}

#[tokio::test]
async fn an_informer_lists_and_watches() {
    let site = Site::start().await;
    informed(Api::namespaced(site.client().await, "shop"), watcher::Config::default().page_size(2)).await;
}

#[tokio::test]
async fn an_informer_streams_its_list() {
    let site = Site::start().await;
    informed(Api::namespaced(site.client().await, "shop"), watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn a_plain_watch_tells_all_and_ends_in_time() {
    let clock = Clock::stop();
    let site = Site::start().await;
    let api: Api<ConfigMap> = Api::namespaced(site.client().await, "shop");
    let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut stream = api.watch(&WatchParams::default().timeout(3), &version).await.unwrap().boxed();
    let made: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"x": "y"}})).unwrap();
    api.create(&PostParams::default(), &made).await.unwrap();
    let first = stream.try_next().await.unwrap();
    assert!(matches!(&first, Some(WatchEvent::Added(map)) if map.name_any() == "a"), "{first:?}");
    // kube-rs asks for bookmarks; one comes before the end.
    clock.pass(Duration::from_secs(1)).await;
    let bookmark = stream.try_next().await.unwrap();
    assert!(matches!(&bookmark, Some(WatchEvent::Bookmark(_))), "{bookmark:?}");
    clock.pass(Duration::from_secs(2)).await;
    let rest: Vec<WatchEvent<ConfigMap>> = stream.try_collect().await.unwrap();
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn metadata_alone_is_listed_and_watched() {
    let site = Site::start().await;
    let client = site.client().await;
    let api: Api<RedisCluster> = Api::namespaced(client.clone(), "shop");
    api.create(&PostParams::default(), &cluster("a")).await.unwrap();
    let list = api.list_metadata(&ListParams::default()).await.unwrap();
    let names: Vec<String> = list.items.iter().map(PartialObjectMeta::name_any).collect();
    assert_eq!(names, ["a"]);
    let api: Api<PartialObjectMeta<RedisCluster>> = Api::namespaced(client, "shop");
    let events = watcher(api, watcher::Config::default());
    let first = tokio::time::timeout(hung::answer(), events.boxed().try_next()).await.unwrap().unwrap();
    assert!(first.is_some());
}

#[tokio::test]
async fn discovery_finds_every_kind() {
    let site = Site::start().await;
    let found = kube::Discovery::new(site.client().await).run().await.unwrap();
    let mut kinds: Vec<String> = found
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
        .map(|(resource, _)| format!("{}/{}", resource.group, resource.kind))
        .collect();
    kinds.sort();
    assert!(kinds.contains(&"redis.kun.io/RedisCluster".to_owned()) && kinds.contains(&"/Pod".to_owned()), "{kinds:?}");
    // Policies that change objects have a version of their own, which is not the group's preferred one.
    assert_eq!(kinds.len(), 29, "{kinds:?}");
}
