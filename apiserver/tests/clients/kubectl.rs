//! What a person types.

use serde_json::{Value, json};

use crate::site::Site;

const ORDERS: &str = "apiVersion: redis.kun.io/v1\nkind: RedisCluster\nmetadata:\n  name: orders\nspec:\n  shards: 3\n";

/// The flag that has kubectl wait for as long as nothing hangs.
fn waiting() -> String {
    format!("--timeout={}s", hung::process().as_secs())
}

#[tokio::test]
async fn a_cluster_is_applied_shown_changed_scaled_and_deleted() {
    let site = Site::start().await;
    let file = site.write("orders.yaml", ORDERS);
    assert_eq!(site.kubectl(&["apply", "-f", &file]).await.unwrap(), "rediscluster.redis.kun.io/orders created\n");
    assert_eq!(site.kubectl(&["apply", "-f", &file]).await.unwrap(), "rediscluster.redis.kun.io/orders unchanged\n");
    let changed =
        site.write("orders5.yaml", &ORDERS.replace("shards: 3", "shards: 5\n  config:\n    maxclients: \"500\""));
    assert_eq!(
        site.kubectl(&["apply", "-f", &changed]).await.unwrap(),
        "rediscluster.redis.kun.io/orders configured\n"
    );
    let dry = site.kubectl(&["apply", "-f", &file, "--dry-run=server"]).await.unwrap();
    assert_eq!(dry, "rediscluster.redis.kun.io/orders configured (server dry run)\n");
    assert_eq!(site.kubectl(&["get", "rdc", "orders", "-o", "jsonpath={.spec.shards}"]).await.unwrap(), "5");

    let table = site.kubectl(&["get", "rdc"]).await.unwrap();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "MODE", "VERSION", "SHARDS", "REPLICAS", "PHASE", "AGE"]);
    assert_eq!(lines[1][..6], ["orders", "Cluster", "7.0", "0/5", "1", "Pending"]);
    let wide = site.kubectl(&["get", "all", "-A", "-o", "wide"]).await.unwrap();
    assert!(wide.contains("LAST BACKUP") && wide.contains("rediscluster.redis.kun.io/orders"), "{wide}");

    let scaled = site.kubectl(&["scale", "rdc", "orders", "--replicas=4"]).await.unwrap();
    assert_eq!(scaled, "rediscluster.redis.kun.io/orders scaled\n");
    let checked = site.kubectl(&["scale", "rdc", "orders", "--current-replicas=4", "--replicas=6"]).await.unwrap();
    assert_eq!(checked, "rediscluster.redis.kun.io/orders scaled\n");
    let refused = site.kubectl(&["scale", "rdc", "orders", "--replicas=1"]).await.unwrap_err();
    assert!(refused.contains("spec.shards: Invalid value: 1: must be from 3 to 1000"), "{refused}");

    assert_eq!(
        site.kubectl(&["label", "rdc", "orders", "tier=gold"]).await.unwrap(),
        "rediscluster.redis.kun.io/orders labeled\n"
    );
    assert_eq!(
        site.kubectl(&["annotate", "rdc", "orders", "a=b"]).await.unwrap(),
        "rediscluster.redis.kun.io/orders annotated\n"
    );
    let patched = site.kubectl(&[
        "patch",
        "rdc",
        "orders",
        "--type=json",
        "-p",
        r#"[{"op":"replace","path":"/spec/shards","value":3}]"#,
    ]);
    assert_eq!(patched.await.unwrap(), "rediscluster.redis.kun.io/orders patched\n");
    assert_eq!(
        site.kubectl(&["get", "rdc", "-l", "tier=gold", "-o", "name"]).await.unwrap(),
        "rediscluster.redis.kun.io/orders\n"
    );
    assert!(site.kubectl(&["describe", "rdc", "orders"]).await.unwrap().contains("Kind:         RedisCluster"));
    let deleted = site.kubectl(&["delete", "rdc", "orders", &waiting()]).await.unwrap();
    assert_eq!(deleted.lines().next(), Some("rediscluster.redis.kun.io \"orders\" deleted"));
}

#[tokio::test]
async fn what_is_wrong_is_said_before_it_is_stored() {
    let site = Site::start().await;
    let unknown = site.write("unknown.yaml", &ORDERS.replace("shards: 3", "shards: 3\n  colour: red"));
    let refused = site.kubectl(&["apply", "-f", &unknown]).await.unwrap_err();
    assert!(refused.contains("unknown field \"spec.colour\""), "{refused}");
    let warned = site.kubectl(&["create", "-f", &unknown, "--validate=warn"]).await.unwrap();
    assert!(warned.contains("Warning: unknown field \"spec.colour\""), "{warned}");
    let bad = site.write("bad.yaml", &ORDERS.replace("name: orders", "name: Orders"));
    let refused = site.kubectl(&["create", "-f", &bad]).await.unwrap_err();
    assert!(refused.contains("The RedisCluster \"Orders\" is invalid: metadata.name: Invalid value"), "{refused}");
    let refused = site.kubectl(&["apply", "--server-side", "-f", &bad]).await.unwrap_err();
    assert!(refused.contains("The RedisCluster \"Orders\" is invalid: metadata.name: Invalid value"), "{refused}");
}

#[tokio::test]
async fn two_people_apply_to_one_object_and_neither_takes_from_the_other_unasked() {
    let site = Site::start().await;
    let file = site.write("orders.yaml", ORDERS);
    let applied = "rediscluster.redis.kun.io/orders serverside-applied";
    for _ in 0..2 {
        assert_eq!(site.kubectl(&["apply", "--server-side", "-f", &file]).await.unwrap().trim(), applied);
    }
    let five = site.write("five.yaml", &ORDERS.replace("shards: 3", "shards: 5"));
    let other = ["apply", "--server-side", "--field-manager=other", "-f", &five];
    let conflict = site.kubectl(&other).await.unwrap_err();
    assert!(conflict.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .spec.shards"), "{conflict}");
    let forced: Vec<&str> = other.iter().copied().chain(["--force-conflicts"]).collect();
    assert_eq!(site.kubectl(&forced).await.unwrap().trim(), applied);
    let shards = site.kubectl(&["get", "rdc", "orders", "-o", "jsonpath={.spec.shards}"]).await.unwrap();
    assert_eq!(shards, "5");
    let differs = site.kubectl(&["diff", "--server-side", "--force-conflicts", "-f", &file]).await.unwrap_err();
    assert!(differs.contains("-  shards: 5") && differs.contains("+  shards: 3"), "{differs}");
}

/// Managers and how each came to own: `kubectl Apply`.
async fn managers(site: &Site) -> Vec<String> {
    let range = "jsonpath={range .metadata.managedFields[*]}{.manager} {.operation};{end}";
    let shown = site.kubectl(&["get", "rdc", "orders", "--show-managed-fields", "-o", range]).await.unwrap();
    shown.split_terminator(';').map(str::to_owned).collect()
}

#[tokio::test]
async fn what_was_applied_on_the_clients_side_is_taken_over_to_the_servers() {
    let site = Site::start().await;
    let file = site.write("orders.yaml", &ORDERS.replace("shards: 3", "shards: 5\n  config:\n    maxclients: \"500\""));
    site.kubectl(&["apply", "-f", &file]).await.unwrap();
    assert_eq!(managers(&site).await, ["kubectl-client-side-apply Update"]);
    let less = site.write("less.yaml", ORDERS);
    let applied = site.kubectl(&["apply", "--server-side", "-f", &less]).await.unwrap();
    assert_eq!(applied.lines().last(), Some("rediscluster.redis.kun.io/orders serverside-applied"));
    // kubectl notes for itself, too, that it keeps the annotation an older one goes by.
    assert_eq!(managers(&site).await, ["kubectl-last-applied Apply", "kubectl Apply"]);
    let spec = site.kubectl(&["get", "rdc", "orders", "-o", "jsonpath={.spec.shards} {.spec.config}"]).await.unwrap();
    assert_eq!(spec, "3 ", "what is not applied any more is still there");
}

#[tokio::test]
async fn a_scale_with_preconditions_counts_only_where_they_hold() {
    let site = Site::start().await;
    let file = site.write("orders.yaml", ORDERS);
    site.kubectl(&["apply", "-f", &file]).await.unwrap();
    let version = ["get", "rdc", "orders", "-o", "jsonpath={.metadata.resourceVersion}"];
    let shards = ["get", "rdc", "orders", "-o", "jsonpath={.spec.shards}"];
    let first = site.kubectl(&version).await.unwrap();
    let at = format!("--resource-version={first}");
    let scaled = site.kubectl(&["scale", "rdc", "orders", &at, "--replicas=5"]).await.unwrap();
    assert_eq!(scaled, "rediscluster.redis.kun.io/orders scaled\n");
    let refused = site.kubectl(&["scale", "rdc", "orders", &at, "--replicas=7"]).await.unwrap_err();
    assert!(refused.contains(&format!("Expected resource version to be {first}")), "{refused}");
    let refused = site.kubectl(&["scale", "rdc", "orders", "--current-replicas=3", "--replicas=7"]).await.unwrap_err();
    assert!(refused.contains("Expected replicas to be 3, was 5"), "{refused}");
    assert_eq!(site.kubectl(&shards).await.unwrap(), "5");
    let now = format!("--resource-version={}", site.kubectl(&version).await.unwrap());
    // It waits, if it is told to, until as many are there.
    let both = ["scale", "rdc", "orders", &now, "--current-replicas=5", "--replicas=7", &waiting()];
    let (scaling, _) = tokio::join!(site.kubectl(&both), async {
        while site.kubectl(&shards).await.unwrap() != "7" {}
        let patch = r#"{"status":{"replicas":7}}"#;
        site.kubectl(&["patch", "rdc", "orders", "--subresource=status", "--type=merge", "-p", patch]).await.unwrap()
    });
    assert_eq!(scaling.unwrap(), "rediscluster.redis.kun.io/orders scaled\n");
    let dry = site.kubectl(&["scale", "rdc", "orders", "--replicas=9", "--dry-run=server"]).await.unwrap();
    assert_eq!(dry, "rediscluster.redis.kun.io/orders scaled (server dry run)\n");
    assert_eq!(site.kubectl(&shards).await.unwrap(), "7");
}

#[tokio::test]
async fn an_edit_changes_what_the_editor_changed_and_a_wrong_one_is_given_back_with_the_reason() {
    let site = Site::start().await;
    let file = site.write("orders.yaml", ORDERS);
    site.kubectl(&["apply", "-f", &file]).await.unwrap();
    let edit = ["edit", "rdc", "orders"];
    let editor = |from: u8, to: u8| {
        let script = format!("sed -i 's/shards: {from}/shards: {to}/' \"$1\"; cp \"$1\" \"$HOME/seen\"\n");
        format!("sh {}", site.write(&format!("edit-{to}.sh"), &script))
    };
    let edited = site.editing(&editor(3, 4), &edit).await.unwrap();
    assert_eq!(edited, "rediscluster.redis.kun.io/orders edited\n");
    let shards = ["get", "rdc", "orders", "-o", "jsonpath={.spec.shards} {.metadata.generation}"];
    assert_eq!(site.kubectl(&shards).await.unwrap(), "4 2");
    let same = site.editing("true", &edit).await.unwrap();
    assert_eq!(same, "Edit cancelled, no changes made.\n");
    // The editor is opened again, with the reason at the head of the file; it leaves it as it is.
    let wrong = site.editing(&editor(4, 1), &edit).await.unwrap_err();
    assert!(wrong.contains("redisclusters.redis.kun.io \"orders\" is invalid"), "{wrong}");
    let seen = site.read("seen");
    assert!(seen.contains("# * spec.shards: Invalid value: 1: must be from 3 to 1000"), "{seen}");
    assert_eq!(site.kubectl(&shards).await.unwrap(), "4 2");
    let status = site.editing(&editor(4, 5), &["edit", "rdc", "orders", "--subresource=status"]).await;
    assert!(status.is_ok(), "{status:?}");
    assert_eq!(site.kubectl(&shards).await.unwrap(), "4 2", "the status is all that an edit of the status changes");
}

#[tokio::test]
async fn a_watch_prints_what_is_there_and_each_change_as_a_row() {
    let site = Site::start().await;
    let file = site.write("orders.yaml", ORDERS);
    site.kubectl(&["apply", "-f", &file]).await.unwrap();
    let (_kubectl, mut lines) = site.running(&["get", "rdc", "-w", "--output-watch-events"]);
    let mut next = async || {
        // Before the first one kubectl has to start.
        let line = tokio::time::timeout(hung::process(), lines.next_line()).await;
        let line = line.expect("a line in time").unwrap().expect("a line");
        line.split_whitespace().take(5).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(next().await, ["EVENT", "NAME", "MODE", "VERSION", "SHARDS"]);
    assert_eq!(next().await, ["ADDED", "orders", "Cluster", "7.0", "0/3"]);
    site.kubectl(&["scale", "rdc", "orders", "--replicas=5"]).await.unwrap();
    assert_eq!(next().await, ["MODIFIED", "orders", "Cluster", "7.0", "0/5"]);
    site.kubectl(&["delete", "rdc", "orders"]).await.unwrap();
    assert_eq!(next().await, ["DELETED", "orders", "Cluster", "7.0", "0/5"]);
}

#[tokio::test]
async fn the_api_explains_itself_in_both_versions_of_openapi() {
    let site = Site::start().await;
    for output in ["plaintext", "plaintext-openapiv2"] {
        let text = site.kubectl(&["explain", "rdc.spec.failover.nodeTimeout", "--output", output]).await.unwrap();
        assert!(text.contains("cluster-node-timeout as a Go duration"), "{output}: {text}");
        let text = site.kubectl(&["explain", "rdc", "--recursive", "--output", output]).await.unwrap();
        assert!(text.contains("batchKeys") && text.contains("finalizers"), "{output}: {text}");
        let text = site.kubectl(&["explain", "statefulset", "--output", output]).await.unwrap();
        assert!(text.contains("StatefulSet"), "{output}: {text}");
    }
    let resources = site.kubectl(&["api-resources", "--api-group=redis.kun.io", "--no-headers"]).await.unwrap();
    let names: Vec<&str> = resources.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["redisbackups", "redisclusters", "redisoperations", "redispolicies"]);
    let version = site.kubectl(&["version"]).await.unwrap();
    assert!(version.contains("Server Version: v1.33.0+kun"), "{version}");
}

#[tokio::test]
async fn actions_are_raw_creates() {
    let site = Site::start().await;
    let file = site.write("orders.yaml", ORDERS);
    site.kubectl(&["apply", "-f", &file]).await.unwrap();
    let base = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";
    let body = site.write("restart.json", "{}");
    let made = site.kubectl(&["create", "--raw", &format!("{base}/restart"), "-f", &body]).await.unwrap();
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(
        (made["kind"].as_str(), made["status"]["requestedBy"].as_str()),
        (Some("RedisOperation"), Some("kun:admin"))
    );
    let body = site.write("failover.json", &json!({"spec": {"failover": {"shard": 9}}}).to_string());
    let refused = site.kubectl(&["create", "--raw", &format!("{base}/failover"), "-f", &body]).await.unwrap_err();
    assert!(refused.contains("must be from 0 to 2: the cluster has 3 shards"), "{refused}");
    let listed = site.kubectl(&["get", "rop"]).await.unwrap();
    assert!(listed.contains("Pending"), "{listed}");
}

#[tokio::test]
async fn a_wait_ends_when_the_condition_holds() {
    let site = Site::start().await;
    let file = site.write("orders.yaml", ORDERS);
    site.kubectl(&["apply", "-f", &file]).await.unwrap();
    let (limit, arguments) = (waiting(), ["wait", "--for=condition=Ready", "rdc/orders"]);
    let arguments = [&arguments[..], &[&limit]].concat();
    let waiting = site.kubectl(&arguments);
    let change = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let condition = json!({"type": "Ready", "status": "True", "reason": "X", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = json!({"status": {"conditions": [condition]}}).to_string();
        site.kubectl(&["patch", "rdc", "orders", "--subresource=status", "--type=merge", "-p", &patch]).await.unwrap()
    };
    let (waited, _) = tokio::join!(waiting, change);
    assert_eq!(waited.unwrap(), "rediscluster.redis.kun.io/orders condition met\n");
}

#[tokio::test]
async fn built_in_kinds_are_made_read_and_edited_by_kubectl() {
    let site = Site::start().await;
    site.kubectl(&["create", "secret", "generic", "s", "--from-literal=password=hunter2"]).await.unwrap();
    let shown = site.kubectl(&["get", "secrets"]).await.unwrap();
    assert!(!shown.contains("hunter2") && !shown.contains("aHVudGVyMg"), "{shown}");
    assert_eq!(site.kubectl(&["get", "secret", "s", "-o", "jsonpath={.data.password}"]).await.unwrap(), "aHVudGVyMg==");
    site.kubectl(&["create", "configmap", "c", "--from-literal=a=b"]).await.unwrap();
    let described = site.kubectl(&["describe", "configmap", "c"]).await.unwrap();
    assert!(described.contains("Data\n====\na:\n----\nb\n"), "{described}");
    assert_eq!(site.kubectl(&["get", "events"]).await.unwrap(), "No resources found in shop namespace.\n");
    let gone = site.kubectl(&["delete", "configmap,secret", "--all"]).await.unwrap();
    assert!(gone.contains("configmap \"c\" deleted") && gone.contains("secret \"s\" deleted"), "{gone}");
    // Nobody empties namespaces here; the deletion is accepted and waits.
    let deleted = site.kubectl(&["delete", "namespace", "shop", "--wait=false"]).await.unwrap();
    assert!(deleted.contains("namespace \"shop\" deleted"), "{deleted}");
    assert!(site.kubectl(&["get", "namespace", "shop"]).await.unwrap().contains("Terminating"));
}

#[tokio::test]
async fn built_in_kinds_are_applied_again_edited_and_made_by_every_generator() {
    let site = Site::start().await;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: \"1\"\n  b: \"1\"\n";
    let file = site.write("c.yaml", text);
    site.kubectl(&["apply", "-f", &file]).await.unwrap();
    let changed = site.write("changed.yaml", &text.replace("a: \"1\"", "a: \"2\"").replace("  b: \"1\"\n", ""));
    assert_eq!(site.kubectl(&["apply", "-f", &changed]).await.unwrap(), "configmap/c configured\n");
    assert_eq!(site.kubectl(&["get", "cm", "c", "-o", "jsonpath={.data}"]).await.unwrap(), r#"{"a":"2"}"#);
    let patched = site.kubectl(&["patch", "configmap", "c", "-p", r#"{"data":{"a":"3"}}"#]).await.unwrap();
    assert_eq!(patched, "configmap/c patched\n");

    let made = site.kubectl(&["create", "service", "clusterip", "web", "--tcp=80:8080"]).await.unwrap();
    assert_eq!(made, "service/web created\n");
    let port = ["get", "service", "web", "-o", "jsonpath={.spec.ports[0].port}:{.spec.ports[0].targetPort}"];
    assert_eq!(site.kubectl(&port).await.unwrap(), "80:8080");
    site.kubectl(&["create", "poddisruptionbudget", "p", "--selector=a=b", "--min-available=50%"]).await.unwrap();
    let budget = ["get", "pdb", "p", "-o", "jsonpath={.spec.minAvailable} {.spec.selector.matchLabels}"];
    assert_eq!(site.kubectl(&budget).await.unwrap(), r#"50% {"a":"b"}"#);
}
