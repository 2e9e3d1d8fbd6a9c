//! POST on a collection.

use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS, cluster, of_kind};

#[tokio::test]
async fn a_created_object_is_answered_whole_with_what_only_the_server_may_say() {
    let api = Api::new().await;
    let mut body = cluster("orders");
    body["metadata"]["uid"] = json!("mine");
    body["metadata"]["generation"] = json!(9);
    body["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    body["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    body["status"] = json!({"phase": "Ready"});
    let reply = api.post(CLUSTERS, &body).await;
    assert_eq!(reply.code, 201);
    assert_eq!(reply.headers["content-type"], "application/json");
    let object = reply.json();
    let metadata = json!({
        "name": "orders",
        "namespace": "shop",
        "uid": object["metadata"]["uid"],
        "generation": 1,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "resourceVersion": "2",
    });
    let mut found = object["metadata"].clone();
    let owners = found.as_object_mut().unwrap().remove("managedFields").unwrap();
    assert_eq!(found, metadata);
    let owner = &owners[0];
    assert_eq!(
        (owners.as_array().unwrap().len(), &owner["operation"], &owner["time"]),
        (1, &json!("Update"), &json!("2026-01-02T03:04:05Z"))
    );
    assert!(
        owner["fieldsV1"]["f:spec"].get("f:shards").is_some() && owner["fieldsV1"].get("f:status").is_none(),
        "{owner}"
    );
    assert_ne!(object["metadata"]["uid"], "mine");
    assert_eq!(object.get("status"), None);
    assert_eq!(object["spec"]["shards"], 3);
    assert_eq!(object["spec"]["memory"], json!({"maxPercent": 75, "policy": "noeviction"}));
    assert_eq!(api.get(&format!("{CLUSTERS}/orders")).await.ok(), object);
}

#[tokio::test]
async fn the_version_of_a_cluster_that_names_none_follows_its_engine() {
    let api = Api::new().await;
    for (name, spec, engine, version) in [
        ("plain", json!({}), "Redis", "7.0"),
        ("redis", json!({"engine": "Redis", "version": null}), "Redis", "7.0"),
        ("valkey", json!({"engine": "Valkey"}), "Valkey", "8.1"),
        ("null", json!({"engine": "Valkey", "version": null}), "Valkey", "8.1"),
        ("nine", json!({"engine": "Valkey", "version": "9"}), "Valkey", "9"),
    ] {
        let mut body = cluster(name);
        body["spec"] = spec;
        let created = api.post(CLUSTERS, &body).await.ok();
        assert_eq!(
            (&created["spec"]["engine"], &created["spec"]["version"]),
            (&json!(engine), &json!(version)),
            "{name}"
        );
    }
    let mut body = cluster("applied");
    body["spec"] = json!({"engine": "Valkey"});
    let apply = api.call("PATCH", &format!("{CLUSTERS}/applied?fieldManager=one"));
    let applied = apply.header("content-type", "application/apply-patch+yaml").body(body.to_string()).send().await.ok();
    assert_eq!(applied["spec"]["version"], "8.1");
    let taken_out = api.merge(&format!("{CLUSTERS}/nine"), &json!({"spec": {"version": null}})).await.fault();
    assert!(taken_out.2.contains("\"8.1\": must not go below 9"), "{taken_out:?}");
}

#[tokio::test]
async fn a_version_of_the_other_engine_and_an_unknown_engine_are_refused() {
    let api = Api::new().await;
    let refused = async |spec: Value| {
        let mut body = cluster("orders");
        body["spec"] = spec;
        api.post(CLUSTERS, &body).await.fault()
    };
    for (spec, part) in [
        (
            json!({"version": "9"}),
            "spec.version: Invalid value: \"9\": must be in the range >=7.0, <9 with engine Redis",
        ),
        (
            json!({"engine": "Valkey", "version": "7.0"}),
            "spec.version: Invalid value: \"7.0\": must be in the range >=8.0, <9.2 with engine Valkey",
        ),
        (
            json!({"engine": "valkey"}),
            "spec.engine: Unsupported value: \"valkey\": supported values: \"Redis\", \"Valkey\"",
        ),
    ] {
        let (code, _, message) = refused(spec).await;
        assert_eq!(code, 422);
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let api = Api::new().await;
    api.cluster("orders").await;
    let fault = api.post(CLUSTERS, &cluster("orders")).await;
    let message = "redisclusters.redis.kun.io \"orders\" already exists".to_owned();
    assert_eq!(fault.fault(), (409, "AlreadyExists".into(), message));
    assert_eq!(fault.json()["details"], json!({"name": "orders", "group": "redis.kun.io", "kind": "redisclusters"}));
    let dry = api.post(&format!("{CLUSTERS}?dryRun=All"), &cluster("orders")).await;
    assert_eq!(dry.code, 409);
}

#[tokio::test]
async fn a_name_held_by_an_object_on_its_way_out_says_so() {
    let api = Api::new().await;
    let mut body = cluster("orders");
    body["metadata"]["finalizers"] = json!(["a.io/b"]);
    api.post(CLUSTERS, &body).await.ok();
    api.delete(&format!("{CLUSTERS}/orders")).await.ok();
    let (code, _, message) = api.post(CLUSTERS, &cluster("orders")).await.fault();
    assert_eq!(
        (code, message.as_str()),
        (409, "object is being deleted: redisclusters.redis.kun.io \"orders\" already exists")
    );
}

#[tokio::test]
async fn a_generated_name_is_unique_and_a_name_wins_over_it() {
    let api = Api::new().await;
    let body = of_kind("RedisCluster", json!({"metadata": {"generateName": "orders-"}, "spec": {}}));
    let names: Vec<Value> = vec![
        api.post(CLUSTERS, &body).await.ok()["metadata"]["name"].clone(),
        api.post(CLUSTERS, &body).await.ok()["metadata"]["name"].clone(),
    ];
    assert_ne!(names[0], names[1]);
    for name in &names {
        let name = name.as_str().unwrap();
        assert!(name.starts_with("orders-") && name.len() == 12, "{name}");
    }
    let both = of_kind("RedisCluster", json!({"metadata": {"generateName": "orders-", "name": "exact"}, "spec": {}}));
    assert_eq!(api.post(CLUSTERS, &both).await.ok()["metadata"]["name"], "exact");
}

#[tokio::test]
async fn an_object_without_a_name_is_invalid() {
    let api = Api::new().await;
    let reply = api.post(CLUSTERS, &of_kind("RedisCluster", json!({"metadata": {}, "spec": {}}))).await;
    let message =
        "RedisCluster.redis.kun.io \"\" is invalid: metadata.name: Required value: name or generateName is required";
    assert_eq!(reply.fault(), (422, "Invalid".into(), message.into()));
    assert_eq!(reply.json()["details"]["kind"], "RedisCluster");
    let cause = json!({"reason": "FieldValueRequired", "field": "metadata.name",
        "message": "Required value: name or generateName is required"});
    assert_eq!(reply.json()["details"]["causes"], json!([cause]));
}

#[tokio::test]
async fn every_fault_is_named_at_once_with_its_path() {
    let api = Api::new().await;
    let mut body = cluster("orders");
    body["spec"] =
        json!({"shards": 2, "replicasPerShard": 9, "config": {"dir": "/"}, "failover": {"nodeTimeout": "never"}});
    let reply = api.post(CLUSTERS, &body).await;
    let causes = reply.json()["details"]["causes"].clone();
    let fields: Vec<&str> = causes.as_array().unwrap().iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["spec.shards", "spec.replicasPerShard", "spec.config[dir]", "spec.failover.nodeTimeout"]);
    assert_eq!(api.get(&format!("{CLUSTERS}/orders")).await.code, 404);
}

#[tokio::test]
async fn wrong_types_and_absurd_numbers_are_invalid_and_break_nothing() {
    let api = Api::new().await;
    for spec in [
        json!({"shards": "3"}),
        json!({"shards": 1.5}),
        json!({"shards": 99_999_999_999_i64}),
        json!({"mode": "Sideways"}),
        json!({"config": {"a": 1}}),
        json!([]),
        json!("x"),
        json!({"storage": {}}),
    ] {
        let body = of_kind("RedisCluster", json!({"metadata": {"name": "orders"}, "spec": spec}));
        let reply = api.post(CLUSTERS, &body).await;
        assert_eq!(reply.fault().0, 422, "{spec}: {}", reply.json());
    }
    let body = of_kind("RedisCluster", json!({"metadata": {"name": "orders", "labels": {"a": 1}}, "spec": {}}));
    let message = "RedisCluster in version \"v1\" cannot be handled as a RedisCluster: json: cannot unmarshal number into Go struct \
                   field ObjectMeta.labels of type string";
    assert_eq!(api.post(CLUSTERS, &body).await.fault(), (400, "BadRequest".into(), message.into()));
    assert_eq!(api.post(CLUSTERS, &of_kind("RedisCluster", json!({"metadata": {"name": "orders"}}))).await.code, 422);
}

#[tokio::test]
async fn a_body_for_something_else_is_a_bad_request() {
    let api = Api::new().await;
    let message = |body: Value| {
        let api = &api;
        async move { api.post(CLUSTERS, &body).await.fault() }
    };
    let with = |field: &str, value: Value| {
        let mut body = cluster("orders");
        body[field] = value;
        body
    };
    assert_eq!(
        message(with("apiVersion", json!("redis.kun.io/v2"))).await.2,
        "the API version in the data (redis.kun.io/v2) does not match the expected API version (redis.kun.io/v1)"
    );
    assert_eq!(
        message(with("kind", json!("Pod"))).await,
        (
            422,
            "Invalid".into(),
            "Pod.redis.kun.io \"orders\" is invalid: kind: Invalid value: \"Pod\": must be RedisCluster".into()
        )
    );
    assert_eq!(
        message(with("apiVersion", Value::Null)).await.2,
        "the API version in the data () does not match the expected API version (redis.kun.io/v1)"
    );
    assert_eq!(
        message(json!({})).await.2,
        "the object provided is unrecognized (must be of type RedisCluster): Object 'Kind' is missing in '{}' ({})"
    );
    let config_map = json!({"metadata": {"name": "c"}});
    assert_eq!(api.post("/api/v1/namespaces/shop/configmaps", &config_map).await.ok()["kind"], "ConfigMap");
    let mut other = cluster("orders");
    other["metadata"]["namespace"] = json!("other");
    let fault = message(other).await;
    assert_eq!((fault.0, fault.1.as_str()), (400, "BadRequest"));
    assert_eq!(fault.2, "the namespace of the provided object does not match the namespace sent on the request");
    for text in ["", "  ", "{", "[]", "null", "\"x\""] {
        assert_eq!(api.call("POST", CLUSTERS).body(text).send().await.fault().0, 400, "{text:?}");
    }
    let mut versioned = cluster("orders");
    versioned["metadata"]["resourceVersion"] = json!("5");
    let fault = message(versioned).await;
    assert_eq!((fault.0, fault.2.as_str()), (500, "resourceVersion should not be set on objects to be created"));
}

#[tokio::test]
async fn a_dry_run_answers_as_if_and_stores_nothing() {
    let api = Api::new().await;
    let reply = api.post(&format!("{CLUSTERS}?dryRun=All"), &cluster("orders")).await;
    assert_eq!(reply.code, 201);
    assert_eq!(reply.json()["spec"]["shards"], 3);
    assert_eq!(reply.json()["metadata"].get("resourceVersion"), None);
    assert_eq!(api.get(&format!("{CLUSTERS}/orders")).await.code, 404);
    let bad = api.post(&format!("{CLUSTERS}?dryRun=Some"), &cluster("orders")).await.fault();
    let message =
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"";
    assert_eq!(bad, (422, "Invalid".into(), message.into()));
}

#[tokio::test]
async fn unknown_and_duplicate_fields_follow_field_validation() {
    let api = Api::new().await;
    let body = r#"{"apiVersion":"redis.kun.io/v1","kind":"RedisCluster","metadata":{"name":"NAME","colour":"x"},"spec":{"shards":3,"shards":4,"hibernated":true}}"#;
    let send = |mode: &'static str, name: &'static str| {
        let uri = format!("{CLUSTERS}{mode}");
        let body = body.replace("NAME", name);
        api.call("POST", &uri).body(body).send()
    };
    let warned = send("", "a").await;
    let expected =
        ["duplicate field \"spec.shards\"", "unknown field \"metadata.colour\"", "unknown field \"spec.hibernated\""];
    assert_eq!(warned.warnings, expected);
    let object = warned.ok();
    assert_eq!((object["spec"]["shards"].as_i64(), object["spec"].get("hibernated")), (Some(4), None));
    let ignored = send("?fieldValidation=Ignore", "b").await;
    assert_eq!((ignored.code, ignored.warnings.len()), (201, 0));
    assert_eq!(
        send("?fieldValidation=Strict", "c").await.fault(),
        (
            400,
            "BadRequest".into(),
            "RedisCluster in version \"v1\" cannot be handled as a RedisCluster: strict decoding error: duplicate \
             field \"spec.shards\", unknown field \"metadata.colour\", unknown field \"spec.hibernated\""
                .into()
        )
    );
    assert_eq!(send("?fieldValidation=Maybe", "c").await.code, 422);
}

#[tokio::test]
async fn yaml_is_read_and_other_forms_are_refused_with_a_list() {
    let api = Api::new().await;
    let yaml =
        "apiVersion: redis.kun.io/v1\nkind: RedisCluster\nmetadata:\n  name: orders\nspec:\n  shards: 3\n  shards: 5\n";
    let reply =
        api.call("POST", CLUSTERS).header("content-type", "application/yaml; charset=utf-8").body(yaml).send().await;
    assert_eq!(reply.warnings, ["line 7: key \"shards\" already set in map"]);
    assert_eq!(reply.ok()["spec"]["shards"], 5);
    let strict = format!("{CLUSTERS}?fieldValidation=Strict");
    let strict = api.call("POST", &strict).header("content-type", "application/yaml").body(yaml).send().await;
    let message = "RedisCluster in version \"v1\" cannot be handled as a RedisCluster: strict decoding error: yaml: unmarshal \
                   errors:\n  line 7: key \"shards\" already set in map";
    assert_eq!(strict.fault(), (400, "BadRequest".into(), message.into()));
    let refused = api
        .call("POST", CLUSTERS)
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .body("k8s")
        .send()
        .await;
    let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";
    assert_eq!(refused.fault(), (415, "UnsupportedMediaType".into(), message.into()));
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let api = Api::new().await;
    let body = format!("{{\"metadata\":{{\"name\":\"{}\"}}}}", "x".repeat(3 * 1024 * 1024));
    let fault = api.call("POST", CLUSTERS).body(body).send().await.fault();
    assert_eq!(fault, (413, "RequestEntityTooLarge".into(), "Request entity too large: limit is 3145728".into()));
    let deep = format!("{{\"metadata\":{{\"name\":\"a\"}},\"spec\":{}1{}}}", "{\"a\":".repeat(5000), "}".repeat(5000));
    assert_eq!(api.call("POST", CLUSTERS).body(deep).send().await.fault().0, 413);
}

#[tokio::test]
async fn owners_named_twice_are_named_once_with_a_warning() {
    let api = Api::new().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"});
    let mut body = cluster("orders");
    body["metadata"]["ownerReferences"] = json!([owner, owner]);
    let reply = api.post(CLUSTERS, &body).await;
    // The schema already knows that owners are a map by uid; duplicates of one body are a fault there.
    match reply.code {
        201 => assert_eq!(reply.warnings.len(), 1),
        _ => assert!(reply.fault().2.contains("metadata.ownerReferences"), "{}", reply.json()),
    }
}

#[tokio::test]
async fn until_the_store_is_open_nothing_is_said_to_be_absent() {
    let api = Api::closed().await;
    for uri in [CLUSTERS.to_owned(), format!("{CLUSTERS}/orders"), "/apis/redis.kun.io/v1/nonsense".to_owned()] {
        let reply = api.get(&uri).await;
        assert_eq!((reply.code, reply.fault().1.as_str()), (503, "ServiceUnavailable"), "{uri}");
        assert_eq!(reply.headers["retry-after"], "5");
    }
    assert_eq!(api.get("/apis").await.code, 200);
}

/// A world in which chance has run out: every number is the same.
#[derive(Debug)]
struct Stuck(std::sync::atomic::AtomicUsize);

impl apiserver::world::World for Stuck {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn uuid(&self) -> uuid::Uuid {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        uuid::Uuid::from_u128(7)
    }
}

#[tokio::test]
async fn a_generated_name_that_stays_taken_is_a_conflict_that_asks_to_try_again() {
    let world = std::sync::Arc::new(Stuck(std::sync::atomic::AtomicUsize::default()));
    let api = Api::living_in(world.clone()).await;
    let mut body = cluster("");
    body["metadata"] = json!({"generateName": "orders-"});
    let made = api.post(CLUSTERS, &body).await.ok();
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    let before = world.0.load(std::sync::atomic::Ordering::SeqCst);
    let reply = api.post(CLUSTERS, &body).await;
    let message = format!(
        "redisclusters.redis.kun.io \"{name}\" already exists, the server was not able to generate a unique name for the object"
    );
    assert_eq!(reply.fault(), (409, "AlreadyExists".into(), message));
    assert_eq!(reply.headers["retry-after"], "1");
    // Each try takes a number for the name and one for the uid.
    assert_eq!(world.0.load(std::sync::atomic::Ordering::SeqCst) - before, 16, "eight tries");
}

#[tokio::test]
async fn a_uid_is_random_and_of_version_4() {
    let api = Api::living_in(std::sync::Arc::new(apiserver::world::System)).await;
    let mut seen = std::collections::BTreeSet::new();
    for name in ["a", "b", "c", "d"] {
        let text = api.cluster(name).await["metadata"]["uid"].as_str().unwrap().to_owned();
        let uid = uuid::Uuid::parse_str(&text).unwrap();
        assert_eq!((uid.get_version_num(), uid.get_variant()), (4, uuid::Variant::RFC4122), "{text}");
        assert_eq!(text, uid.hyphenated().to_string(), "36 characters, small letters");
        seen.insert(text);
    }
    assert_eq!(seen.len(), 4);
}

/// A world whose numbers are written down: after the last one there is none.
#[derive(Debug)]
struct Scripted(std::sync::Mutex<std::collections::VecDeque<u128>>);

impl apiserver::world::World for Scripted {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::from_u128(self.0.lock().unwrap().pop_front().expect("one number more than was written down"))
    }
}

#[tokio::test]
async fn after_a_clash_another_name_is_made() {
    // A name and a uid for each try: the second create clashes with the first, twice, and then has another name.
    let numbers = [1 << 100, 11, 1 << 100, 12, 1 << 100, 13, 2 << 100, 14];
    let world = Scripted(std::sync::Mutex::new(numbers.into()));
    let api = Api::living_in(std::sync::Arc::new(world)).await;
    let body = of_kind("RedisCluster", json!({"metadata": {"generateName": "orders-"}, "spec": {}}));
    let first = api.post(CLUSTERS, &body).await.ok();
    let second = api.post(CLUSTERS, &body).await;
    assert_eq!(second.code, 201);
    let second = second.ok();
    let (one, other) = (&first["metadata"]["name"], &second["metadata"]["name"]);
    assert!(one != other && other.as_str().unwrap().starts_with("orders-"), "{one} {other}");
    let uid = |number| json!(uuid::Uuid::from_u128(number).to_string());
    assert_eq!((&first["metadata"]["uid"], &second["metadata"]["uid"]), (&uid(11), &uid(14)));
    assert_eq!(api.get(CLUSTERS).await.ok()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_too_large_for_the_store_is_a_413_however_it_is_written() {
    let api = Api::new().await;
    let maps = "/api/v1/namespaces/shop/configmaps";
    let of = |bytes: usize| json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(bytes)}});
    let (code, reason, message) = api.post(maps, &of(store::VALUE_LIMIT)).await.fault();
    assert_eq!((code, reason.as_str()), (413, "RequestEntityTooLarge"));
    assert!(
        message.starts_with("Request entity too large: the object has 15") && message.ends_with("limit is 1564672"),
        "{message}"
    );
    assert_eq!(api.get(&format!("{maps}/large")).await.code, 404);
    let made = api.post(maps, &of(store::VALUE_LIMIT - 2000)).await.ok();
    let path = format!("{maps}/large");
    let mut larger = of(store::VALUE_LIMIT);
    larger["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    assert_eq!(api.put(&path, &larger).await.fault().0, 413);
    assert_eq!(api.merge(&path, &json!({"data": {"b": "x".repeat(4000)}})).await.fault().0, 413);
    assert_eq!(api.get(&path).await.ok(), made, "what was refused changed something");
    assert_eq!(api.merge(&path, &json!({"data": {"a": "small"}})).await.code, 200);
}

#[tokio::test]
async fn labels_that_are_too_many_are_refused_in_a_create_and_in_a_change() {
    let api = Api::new().await;
    let labels: serde_json::Map<_, _> = (0..2_000).map(|n| (format!("label-{n}"), json!("x".repeat(30)))).collect();
    let why = "metadata.labels: Too long: may not be more than 65536 bytes";
    let mut full = cluster("full");
    full["metadata"]["labels"] = json!(labels);
    let (code, _, message) = api.post(CLUSTERS, &full).await.fault();
    assert!(code == 422 && message.contains(why), "{code} {message}");
    api.post(CLUSTERS, &cluster("orders")).await.ok();
    let patch = json!({"metadata": {"labels": labels}});
    let (code, _, message) = api.merge(&format!("{CLUSTERS}/orders"), &patch).await.fault();
    assert!(code == 422 && message.contains(why), "{code} {message}");
}
