//! A kind in two versions, as requests: what goes in through one comes out through the other, and is kept in the hub.
//!
//! Gadgets are kept in v2. v1 has other names for two fields and none for a third, which it carries in an annotation.

use std::sync::Arc;

use apiserver::{
    registry::{Column, Conversion, Kind, Names, Registry, ScalePaths, Scope, Subresource, host},
    resource::Strategy,
};
use serde_json::{Map, Value, json};
use store::{Key, Memory, Store, Write};

use crate::support::{Api, Reply};

const V1: &str = "/apis/test.kun.io/v1/namespaces/shop/gadgets";
const V2: &str = "/apis/test.kun.io/v2/namespaces/shop/gadgets";
const FINISH: &str = "test.kun.io/finish";

struct Rules;
impl Strategy for Rules {}

/// Between v1 (`count`, `paint`) and v2 (`size`, `color`, `finish`), from either side: which of them is the hub may change
/// from release to release.
struct Renamed {
    hub: &'static str,
}

impl Renamed {
    fn to_v2(object: &mut Map<String, Value>) {
        rename(object, &[("count", "size"), ("paint", "color")]);
        let annotations = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
        let Some(annotations) = annotations.and_then(Value::as_object_mut) else { return };
        if let Some(finish) = annotations.remove(FINISH) {
            let is_empty = annotations.is_empty();
            if is_empty {
                object["metadata"].as_object_mut().unwrap().remove("annotations");
            }
            object.entry("spec").or_insert(json!({}))["finish"] = finish;
        }
    }

    fn to_v1(object: &mut Map<String, Value>) {
        rename(object, &[("size", "count"), ("color", "paint")]);
        let finish = object.get_mut("spec").and_then(Value::as_object_mut).and_then(|spec| spec.remove("finish"));
        if let Some(finish) = finish {
            object["metadata"]["annotations"][FINISH] = finish;
        }
    }
}

fn rename(object: &mut Map<String, Value>, names: &[(&str, &str)]) {
    for part in ["spec", "status"] {
        let Some(fields) = object.get_mut(part).and_then(Value::as_object_mut) else { continue };
        for (from, to) in names {
            if let Some(value) = fields.remove(*from) {
                fields.insert((*to).to_owned(), value);
            }
        }
    }
}

impl Conversion for Renamed {
    fn keep(&self, object: &mut Map<String, Value>) {
        if self.hub == "v2" { Self::to_v2(object) } else { Self::to_v1(object) }
    }

    fn show(&self, object: &mut Map<String, Value>) {
        if self.hub == "v2" { Self::to_v1(object) } else { Self::to_v2(object) }
    }
}

fn kind(version: &'static str, hub: &'static str) -> Kind {
    let (number, paint, spec, status): (_, _, &'static str, &'static str) = match version {
        "v1" => ("count", "paint", "/spec/count", "/status/count"),
        _v2 => ("size", "color", "/spec/size", "/status/size"),
    };
    let mut fields = json!({number: {"type": "integer", "maximum": 100}, paint: {"type": "string", "default": "red"}});
    if version == "v2" {
        fields["finish"] = json!({"type": "string"});
    }
    let schema = json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "spec": {"type": "object", "default": {}, "properties": fields},
        "status": {"type": "object", "properties": {number: {"type": "integer"}}},
    }});
    let names = Names {
        group: "test.kun.io",
        version,
        kind: "Gadget",
        plural: "gadgets",
        singular: "gadget",
        short_names: &[],
    };
    let column = if version == "v1" { "{.spec.count}" } else { "{.spec.size}" };
    let conversion = (version != hub).then(|| Arc::new(Renamed { hub }) as Arc<dyn Conversion>);
    Kind {
        conversion,
        columns: vec![Column::new("Number", "integer", column, "How many.")],
        subresources: vec![
            Subresource::Scale(ScalePaths { spec, status, selector: "/status/selector" }),
            Subresource::Status,
        ],
        ..Kind::new(names, Scope::Namespaced, schema, Arc::new(Rules)).unwrap()
    }
}

/// Both versions, kept in `hub`.
fn both(hub: &'static str) -> Registry {
    Registry::new(vec![kind("v1", hub), kind("v2", hub)])
}

async fn api() -> (Api, Arc<Memory>) {
    let store = Arc::new(Memory::default());
    (Api::serving(both("v2"), store.clone()).await.unwrap(), store)
}

fn v1(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "test.kun.io/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec})
}

fn v2(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "test.kun.io/v2", "kind": "Gadget", "metadata": {"name": name}, "spec": spec})
}

fn key(name: &str) -> Key {
    Key::new("test.kun.io/gadgets", Some("shop"), name).unwrap()
}

/// What is kept, without metadata.
async fn kept(store: &Memory, name: &str) -> Value {
    let stored = store.get(&key(name)).await.unwrap().unwrap();
    let mut object: Value = serde_json::from_slice(&stored.value).unwrap();
    object.as_object_mut().unwrap().remove("metadata");
    object
}

/// An object without what the server says about it.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|name, _| matches!(name.as_str(), "name" | "annotations" | "labels"));
    object
}

async fn apply(api: &Api, uri: &str, config: &Value) -> Reply {
    api.call("PATCH", uri).header("content-type", "application/apply-patch+yaml").json(config).send().await
}

#[tokio::test]
async fn what_is_made_through_one_version_is_kept_in_the_hub_and_read_through_both() {
    let (api, store) = api().await;
    let made = api.post(V1, &v1("a", &json!({"count": 3}))).await.ok();
    assert_eq!(plain(&made), v1("a", &json!({"count": 3, "paint": "red"})));
    let hub = json!({"apiVersion": "test.kun.io/v2", "kind": "Gadget", "spec": {"size": 3, "color": "red"}});
    assert_eq!(kept(&store, "a").await, hub);
    let other = api.get(&format!("{V2}/a")).await.ok();
    assert_eq!(plain(&other), v2("a", &json!({"size": 3, "color": "red"})));
    assert_eq!(api.get(&format!("{V1}/a")).await.ok(), made);
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
        assert_eq!(made["metadata"][field], other["metadata"][field], "{field}");
    }
    assert_eq!(api.get("/apis/test.kun.io/v3/namespaces/shop/gadgets/a").await.code, 404);
}

#[tokio::test]
async fn lists_watches_tables_and_metadata_come_in_the_version_asked_for() {
    let (api, _) = api().await;
    let mut watch = api.watch(&format!("{V1}?watch=1")).await;
    api.post(V2, &v2("a", &json!({"size": 3, "finish": "matt"}))).await.ok();
    let mut expected = v1("a", &json!({"count": 3, "paint": "red"}));
    expected["metadata"]["annotations"] = json!({FINISH: "matt"});
    let list = api.get(V1).await.ok();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("GadgetList"), &json!("test.kun.io/v1")));
    assert_eq!(plain(&list["items"][0]), expected);
    let event = watch.next().await.unwrap();
    assert_eq!((event["type"].as_str(), plain(&event["object"])), (Some("ADDED"), expected));
    for (uri, number) in [(V1, 3), (V2, 3)] {
        let table = api.call("GET", uri).accept("application/json;as=Table;v=v1;g=meta.k8s.io").send().await.ok();
        assert_eq!(table["rows"][0]["cells"][1], number, "{uri}");
    }
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let annotations = |list: Value| list["items"][0]["metadata"]["annotations"].clone();
    assert_eq!(annotations(api.call("GET", V1).accept(metadata).send().await.ok()), json!({FINISH: "matt"}));
    assert_eq!(annotations(api.call("GET", V2).accept(metadata).send().await.ok()), json!(null));
}

#[tokio::test]
async fn a_change_through_an_older_version_keeps_what_only_the_newer_one_knows() {
    let (api, store) = api().await;
    api.post(V2, &v2("a", &json!({"size": 3, "finish": "matt"}))).await.ok();
    let mut old = api.get(&format!("{V1}/a")).await.ok();
    old["spec"]["count"] = json!(4);
    let put = api.put(&format!("{V1}/a"), &old).await.ok();
    assert_eq!((&put["spec"]["count"], &put["metadata"]["generation"]), (&json!(4), &json!(2)));
    api.merge(&format!("{V1}/a"), &json!({"spec": {"paint": "blue"}})).await.ok();
    let patch = json!([{"op": "test", "path": "/spec/paint", "value": "blue"}, {"op": "replace", "path": "/spec/count", "value": 5}]);
    let json_patch = api.call("PATCH", &format!("{V1}/a")).header("content-type", "application/json-patch+json");
    assert_eq!(json_patch.json(&patch).send().await.ok()["spec"], json!({"count": 5, "paint": "blue"}));
    api.merge(&format!("{V1}/a/status"), &json!({"status": {"count": 2}})).await.ok();
    let hub = json!({"apiVersion": "test.kun.io/v2", "kind": "Gadget",
        "spec": {"size": 5, "color": "blue", "finish": "matt"}, "status": {"size": 2}});
    assert_eq!(kept(&store, "a").await, hub);
    for uri in [V1, V2] {
        let scale = api.get(&format!("{uri}/a/scale")).await.ok();
        assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(5), &json!(2)), "{uri}");
    }
    let scaled = api.merge(&format!("{V1}/a/scale"), &json!({"spec": {"replicas": 7}})).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 7);
    assert_eq!(kept(&store, "a").await["spec"], json!({"size": 7, "color": "blue", "finish": "matt"}));
    api.delete(&format!("{V1}/a")).await.ok();
    assert_eq!(api.get(&format!("{V2}/a")).await.code, 404);
}

#[tokio::test]
async fn each_version_has_fields_of_its_own() {
    let (api, _) = api().await;
    let uri = format!("{V1}?fieldValidation=Strict");
    let (code, _, message) = api.post(&uri, &v1("a", &json!({"count": 1, "finish": "matt"}))).await.fault();
    assert_eq!(code, 400);
    assert!(message.contains("unknown field \"spec.finish\""), "{message}");
    let invalid = api.post(V1, &v1("a", &json!({"count": 101}))).await.fault();
    assert_eq!((invalid.0, invalid.2.contains("spec.count")), (422, true), "{invalid:?}");
    let mixed = api.post(V2, &v1("a", &json!({"count": 1}))).await.fault();
    assert_eq!(mixed.0, 400, "{mixed:?}");
}

#[tokio::test]
async fn discovery_lists_both_versions_with_one_stored_form() {
    let (api, _) = api().await;
    let group = api.get("/apis/test.kun.io").await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let versions: Vec<&Value> = group["versions"].as_array().unwrap().iter().map(|entry| &entry["version"]).collect();
    assert_eq!(versions, ["v2", "v1"]);
    let resource = |list: Value| list["resources"][0].clone();
    let old = resource(api.get("/apis/test.kun.io/v1").await.ok());
    assert_eq!((&old["name"], &old["kind"]), (&json!("gadgets"), &json!("Gadget")));
    assert_eq!(old["storageVersionHash"], resource(api.get("/apis/test.kun.io/v2").await.ok())["storageVersionHash"]);
    let open = api.get("/openapi/v3/apis/test.kun.io/v1").await.ok();
    assert!(
        open["components"]["schemas"]["io.kun.test.v1.Gadget"]["properties"]["spec"]["properties"]["count"].is_object()
    );
}

#[tokio::test]
async fn owners_keep_the_version_they_wrote_in_and_are_compared_there() {
    let (api, store) = api().await;
    let made = apply(&api, &format!("{V1}/a?fieldManager=a"), &v1("a", &json!({"count": 1, "paint": "blue"}))).await;
    assert_eq!(made.code, 201);
    let conflict = apply(&api, &format!("{V2}/a?fieldManager=b"), &v2("a", &json!({"size": 2}))).await.fault();
    assert_eq!(conflict.2, "Apply failed with 1 conflict: conflict with \"a\": .spec.count");
    apply(&api, &format!("{V2}/a?fieldManager=b&force=true"), &v2("a", &json!({"size": 2}))).await.ok();
    api.merge(&format!("{V2}/a?fieldManager=u"), &json!({"spec": {"finish": "matt"}})).await.ok();
    let object = api.get(&format!("{V1}/a")).await.ok();
    let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
    let mut owners: Vec<String> = entries
        .map(|entry| format!("{} {} {}", entry["manager"], entry["apiVersion"], entry["fieldsV1"]["f:spec"]))
        .collect();
    owners.sort();
    let expected = [
        r#""a" "test.kun.io/v1" {"f:paint":{}}"#,
        r#""b" "test.kun.io/v2" {"f:size":{}}"#,
        r#""u" "test.kun.io/v2" {"f:finish":{}}"#,
    ];
    assert_eq!(owners, expected);
    // What a applied in v1 and leaves out in v2 goes back to its default; what others own stays.
    apply(&api, &format!("{V2}/a?fieldManager=a"), &v2("a", &json!({}))).await.ok();
    assert_eq!(kept(&store, "a").await["spec"], json!({"size": 2, "color": "red", "finish": "matt"}));
}

/// What kube-storage-version-migrator sends for each object.
async fn migrate(api: &Api, name: &str) -> Reply {
    let object = api.get(&format!("{V2}/{name}")).await.ok();
    let of = &object["metadata"];
    let config = json!({"apiVersion": "test.kun.io/v2", "kind": "Gadget", "metadata":
        {"name": name, "namespace": "shop", "uid": of["uid"], "resourceVersion": of["resourceVersion"]}});
    apply(api, &format!("{V2}/{name}?fieldManager=storage-version-migrator&force=true"), &config).await
}

#[tokio::test]
async fn after_the_stored_version_changed_the_old_ones_are_read_and_rewritten_once_by_the_migrator() {
    let store = Arc::new(Memory::default());
    let before = Api::serving(both("v1"), store.clone()).await.unwrap();
    before.post(V2, &v2("a", &json!({"size": 3, "finish": "matt"}))).await.ok();
    before.post(V1, &v1("b", &json!({"count": 1}))).await.ok();
    assert_eq!(kept(&store, "a").await["apiVersion"], "test.kun.io/v1");

    let after = Api::serving(both("v2"), store.clone()).await.unwrap();
    let read = after.get(&format!("{V2}/a")).await.ok();
    assert_eq!(plain(&read), v2("a", &json!({"size": 3, "color": "red", "finish": "matt"})));
    let mut watch = after.watch(&format!("{V2}?watch=1&fieldSelector=metadata.name%3Da")).await;
    assert_eq!(watch.next_short().await, ("ADDED".to_owned(), "a".to_owned()));

    let rewritten = migrate(&after, "a").await;
    assert_eq!(kept(&store, "a").await["apiVersion"], "test.kun.io/v2");
    let rewritten = rewritten.ok();
    assert_eq!(plain(&rewritten), plain(&read));
    assert_ne!(rewritten["metadata"]["resourceVersion"], read["metadata"]["resourceVersion"]);
    assert_eq!(rewritten["metadata"]["managedFields"], read["metadata"]["managedFields"], "the migrator owns nothing");
    assert_eq!(watch.next_short().await, ("MODIFIED".to_owned(), "a".to_owned()));
    let again = migrate(&after, "a").await.ok();
    assert_eq!(again["metadata"]["resourceVersion"], rewritten["metadata"]["resourceVersion"], "once is enough");
    assert_eq!(kept(&store, "b").await["apiVersion"], "test.kun.io/v1", "nobody wrote it");
    let gone = apply(
        &after,
        &format!("{V2}/x?fieldManager=m"),
        &json!({"apiVersion": "test.kun.io/v2", "kind": "Gadget",
        "metadata": {"name": "x", "uid": "u"}}),
    )
    .await;
    assert_eq!(gone.fault().0, 409, "what is gone is not made anew");

    // b is still in v1: a release without it does not start.
    let alone = || Registry::new(vec![kind("v2", "v2")]);
    let refused = Api::serving(alone(), store.clone()).await.err().unwrap();
    assert!(refused.contains("objects of test.kun.io/v1, which this release does not serve any more"), "{refused}");
    migrate(&after, "b").await.ok();
    let last = Api::serving(alone(), store).await.unwrap();
    let names = last.get(V2).await.ok()["items"].as_array().unwrap().len();
    assert_eq!(names, 2);
}

#[tokio::test]
async fn an_object_that_is_written_in_a_version_unknown_today_is_told_and_hides_no_other_kind() {
    let (api, store) = api().await;
    let value =
        serde_json::to_vec(&json!({"apiVersion": "test.kun.io/v9", "kind": "Gadget", "metadata": {"name": "z"}}));
    store.write(Write::create(key("z"), value.unwrap().into())).await.unwrap();
    api.storage.fresh().await.unwrap();
    let (code, reason, message) = api.get(&format!("{V2}/z")).await.fault();
    assert_eq!((code, reason.as_str()), (500, "InternalError"));
    assert!(message.contains("its version test.kun.io/v9 is not served any more"), "{message}");
}

const POLICIES: &str = "/apis/admissionregistration.k8s.io";

/// A policy of v1 objects, bound; `word` is its matchPolicy.
async fn policy(api: &Api, kind: &str, word: &str, body: &Value) {
    let (version, plural) = match kind {
        "ValidatingAdmissionPolicy" => ("v1", "validatingadmissionpolic"),
        _mutating => ("v1beta1", "mutatingadmissionpolic"),
    };
    let rule = json!({"operations": ["CREATE", "UPDATE"], "apiGroups": ["test.kun.io"], "apiVersions": ["v1"], "resources": ["gadgets"]});
    let mut spec = body.clone();
    spec["matchConstraints"] = json!({"matchPolicy": word, "resourceRules": [rule]});
    let of = |kind: &str, name: &str, spec: Value| json!({"apiVersion": format!("admissionregistration.k8s.io/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec});
    let name = word.to_lowercase();
    api.post(&format!("{POLICIES}/{version}/{plural}ies"), &of(kind, &name, spec)).await.ok();
    let mut binding = json!({"policyName": name});
    if version == "v1" {
        binding["validationActions"] = json!(["Deny"]);
    }
    let bound = of(&format!("{kind}Binding"), &name, binding);
    api.post(&format!("{POLICIES}/{version}/{plural}ybindings"), &bound).await.ok();
}

async fn guarded() -> Api {
    Api::guarding(both("v2").and(host::registry().unwrap())).await
}

#[tokio::test]
async fn a_policy_about_one_version_judges_requests_through_another_as_that_version_shows_them() {
    let api = guarded().await;
    let rules = json!([{"expression":
        "object.apiVersion == 'test.kun.io/v1' && object.spec.count < 3 && request.resource.version == 'v1'",
        "messageExpression": "'asked through ' + request.requestResource.version + ': ' + string(object.spec.count)"}]);
    policy(&api, "ValidatingAdmissionPolicy", "Equivalent", &json!({"validations": rules})).await;
    for (uri, object, through) in [(V1, v1("a", &json!({"count": 3})), "v1"), (V2, v2("a", &json!({"size": 3})), "v2")]
    {
        let (code, _, message) = api.post(uri, &object).await.fault();
        assert_eq!(code, 422);
        assert!(message.ends_with(&format!("asked through {through}: 3")), "{message}");
    }
    api.post(V2, &v2("a", &json!({"size": 2}))).await.ok();
}

#[tokio::test]
async fn a_policy_that_wants_exactly_its_version_sees_no_other() {
    let api = guarded().await;
    let never = json!({"validations": [{"expression": "false"}]});
    policy(&api, "ValidatingAdmissionPolicy", "Exact", &never).await;
    assert_eq!(api.post(V1, &v1("a", &json!({"count": 1}))).await.code, 422);
    api.post(V2, &v2("a", &json!({"size": 1}))).await.ok();
}

#[tokio::test]
async fn a_mutating_policy_about_one_version_changes_objects_of_another() {
    let api = guarded().await;
    let patch =
        "[JSONPatch{op: 'replace', path: '/spec/paint', value: object.spec.paint + '-' + string(object.spec.count)}]";
    let body = json!({"failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]});
    policy(&api, "MutatingAdmissionPolicy", "Equivalent", &body).await;
    let made = api.post(V2, &v2("a", &json!({"size": 1, "finish": "matt"}))).await.ok();
    assert_eq!(made["spec"], json!({"size": 1, "color": "red-1", "finish": "matt"}));
}
