//! What an operator does on purpose: nothing acknowledged is lost by it.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{
    fixture::Fixture,
    kubectl::{condition, waiting},
    oracle,
    standalone::Standalone,
};

/// While the role is handed over, writes wait, and each step of that is on disk before the next. How long they wait is what
/// `make bench` measures (`failover`, `moves`); here a write without an answer is one that was cut off.
async fn under_writes_that_wait(spec: &Value) -> Result<Fixture> {
    let mut fixture = Fixture::idle(Standalone::start().await?, 3, 1, spec).await?;
    fixture.write_waiting().await?;
    Ok(fixture)
}

/// The end of a test in which so many roles were handed over, and every node lived until its role was somebody else's: nothing
/// lost, nothing cut off.
async fn verify_planned(fixture: Fixture, moves: usize) -> Result<()> {
    let Elections { won, asked } = elections(&fixture)?;
    assert!(won >= moves && asked >= moves, "{won} elections were won, {asked} were asked for, {moves} were to be");
    let (verdict, _) = fixture.verify(3, 1).await?;
    assert_eq!(verdict.unknown, 0, "a planned move leaves no write without an answer: {verdict:?}");
    Ok(())
}

/// Only here Redis' own votes decide under a writer, and status, scale and endpoints have to follow them.
#[tokio::test]
async fn six_planned_failovers_lose_nothing_and_each_really_changes_the_primary() -> Result<()> {
    let fixture = under_writes_that_wait(&json!({})).await?;
    // A role that moves while the machine stands still is not seen moving, and its news takes its usual time.
    let mut seen = 0;
    // Twice in each shard: there, and back.
    for round in 0..6 {
        let shard = round % 3;
        let (before, _) = fixture.primary(shard).await?;
        let body = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisOperation",
                          "spec": {"failover": {"shard": shard}}});
        let done = fixture.act("failover", "rop", &body, "Succeeded").await?;
        seen += usize::from(done["status"]["steps"].to_string().contains("became the primary of its shard"));
        fixture.ready(3).await?;
        let (after, _) = fixture.primary(shard).await?;
        assert_ne!(before, after, "round {round}");
    }
    assert!(seen > 0, "none of 6 roles was seen moving");
    // A push that has no answer in time is not made again: it may have been made.
    let pushed = pushes(&fixture).await?;
    assert!((1..=elections(&fixture)?.won).contains(&pushed), "{pushed} times winners pushed their news out");
    what_scale_selects_are_the_primaries(&fixture).await?;
    the_endpoints_are_where_members_answer(&fixture).await?;
    verify_planned(fixture, 6).await
}

/// What the redis-servers that are there have logged since they started.
#[derive(Debug, PartialEq)]
struct Elections {
    won: usize,
    /// How often a member was told to stand: one that stands by itself does so because it gave its primary up.
    asked: usize,
}

fn elections(fixture: &Fixture) -> Result<Elections> {
    let (mut won, mut asked) = (0, 0);
    for pod in fs::read_dir(fixture.kun.data().join("node/pods"))? {
        let log = fs::read_to_string(pod?.path().join("log"))?;
        won += log.matches("Failover election won").count();
        asked += log.matches("failover user request accepted").count();
    }
    Ok(Elections { won, asked })
}

/// Messages published on all nodes since they started. Nobody but the controller publishes here.
async fn pushes(fixture: &Fixture) -> Result<usize> {
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
    let mut calls = 0_usize;
    for address in fixture.addresses().await?.into_values() {
        let mut node = oracle::open(address, &credentials).await?;
        let stats = node.info(&["commandstats"]).await?;
        let published = stats.get("cmdstat_publish").and_then(|stat| stat.split(',').next()?.strip_prefix("calls="));
        calls += published.map_or(Ok(0), str::parse::<usize>)?;
    }
    Ok(calls)
}

/// Redis counts the votes of an election twice if the same replica stands again within four node timeouts: it then calls
/// itself the primary without a new epoch, takes writes, and throws them away when it is told so.
#[tokio::test]
async fn the_role_goes_back_and_forth_in_one_shard_and_each_time_it_is_one_real_election() -> Result<()> {
    let fixture = under_writes_that_wait(&json!({})).await?;
    // Each of these but the first has to rest from the one before; the third is the second time for the same replica.
    for round in 0..3 {
        // Whoever has just lost the role follows again first: a failover to a replica that is not in sync is refused.
        fixture.ready(3).await?;
        let body =
            json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisOperation", "spec": {"failover": {"shard": 0}}});
        let done = fixture.act("failover", "rop", &body, "Succeeded").await?;
        let steps = done["status"]["steps"].as_array().cloned().unwrap_or_default();
        // A role that moves while the machine stands still is not seen moving.
        assert!((1..=2).contains(&steps.len()), "round {round}: whose it was, and one hand-over: {steps:?}");
    }
    verify_planned(fixture, 3).await
}

/// Only pods that really go and come give a writer every moment between.
#[tokio::test]
async fn a_rolling_restart_replaces_every_pod_replicas_first_and_loses_nothing() -> Result<()> {
    // Nobody is given up here: only a hand-over can make another member the primary.
    let fixture = under_writes_that_wait(&json!({"failover": tests::fixture::node_timeout(15)})).await?;
    let before = pod_uids(&fixture).await?;
    let patch = r#"{"spec":{"resources":{"limits":{"memory":"300Mi"}}}}"#;
    fixture.kubectl.run(&["patch", "rdc", "orders", "--type=merge", "-p", patch]).await?;
    let all_new =
        |cluster: &Value| condition(cluster, "UpToDate")["status"] == "True" && tests::story::is_ready(cluster, 3);
    fixture.kubectl.until("rdc", "orders", hung::change(), "rolled", all_new).await?;
    let after = pod_uids(&fixture).await?;
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (pod, uid) in &before {
        assert_ne!(after.get(pod), Some(uid), "{pod} was not restarted");
    }
    let Elections { won, asked } = elections(&fixture)?;
    // A hand-over that comes to nothing, because the machine stood still, is asked for again.
    assert!(won == 3 && asked >= 3, "one for each shard: {won} elections were won, {asked} were asked for");
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Only here whole copies are made beside a writer, in pods that come and go.
#[tokio::test]
async fn replicas_are_added_and_taken_away_without_touching_the_primaries() -> Result<()> {
    let fixture = Fixture::start(3, 0, &json!({})).await?;
    for replicas in [1, 2, 1] {
        let patch = json!({"spec": {"replicasPerShard": replicas}}).to_string();
        fixture.kubectl.run(&["patch", "rdc", "orders", "--type=merge", "-p", &patch]).await?;
        let done = |cluster: &Value| {
            tests::story::is_ready(cluster, 3)
                && cluster["status"]["shards"].as_array().is_some_and(|shards| {
                    shards.iter().all(|s| s["members"].as_array().is_some_and(|members| members.len() == replicas + 1))
                })
        };
        fixture.kubectl.until("rdc", "orders", hung::change(), "replicated", done).await?;
    }
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Only here new shards get pods, slots and keys under a writer, and give all of it back.
#[tokio::test]
async fn shards_go_from_three_to_five_and_back_under_load() -> Result<()> {
    let fixture = under_writes_that_wait(&json!({"failover": tests::fixture::node_timeout(15)})).await?;
    // While the cluster is made nodes give each other up sooner.
    let before = elections(&fixture)?;
    for shards in [5, 3] {
        fixture.kubectl.run(&["scale", "rdc", "orders", &format!("--replicas={shards}")]).await?;
        fixture.ready(shards).await?;
    }
    assert_eq!(elections(&fixture)?, before, "slots move, roles do not");
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Only here two clusters have their children, volumes and passwords in one store, beside collectors that delete.
#[tokio::test]
async fn deletion_takes_the_children_away_and_leaves_other_clusters_alone() -> Result<()> {
    let fixture = Fixture::start(3, 0, &json!({"storage": {"size": "1Gi", "retain": "Retain"}})).await?;
    let other = tests::fixture::manifest(3, 0, &json!({})).replace("\"orders\"", "\"other\"");
    fixture.kubectl.feed(&["apply", "-f", "-"], &other).await?;
    tests::story::ready(&fixture.kubectl, "other", 3).await?;
    fixture.kubectl.run(&["delete", "rdc", "orders", &waiting()]).await?;
    for kind in ["statefulsets", "services", "networkpolicies", "configmaps", "poddisruptionbudgets", "pods"] {
        let left = fixture.kubectl.run(&["get", kind, "-l", "redis.kun.io/cluster=orders", "-o", "name"]).await?;
        assert_eq!(left.trim(), "", "{kind} are left");
    }
    let claims = fixture.kubectl.run(&["get", "pvc", "-l", "redis.kun.io/cluster=orders", "-o", "name"]).await?;
    assert_eq!(claims.lines().count(), 3, "retained volumes stay");
    let secrets = fixture.kubectl.run(&["get", "secrets", "-l", "redis.kun.io/cluster=orders", "-o", "name"]).await?;
    assert_eq!(secrets.lines().count(), 2, "the passwords of retained volumes stay with them");
    tests::story::ready(&fixture.kubectl, "other", 3).await?;
    Ok(())
}

/// What its pods did not write to their volumes when they were ended is gone; what they did comes back with the cluster's name.
#[tokio::test]
async fn a_cluster_deleted_with_its_volumes_retained_comes_back_with_every_write() -> Result<()> {
    let snapshots = json!({"appendOnly": "Off", "snapshots": [{"seconds": 3600, "changes": 1}]});
    for persistence in [json!({"appendOnly": "EverySec"}), snapshots] {
        let spec = json!({"storage": {"size": "1Gi", "retain": "Retain"}, "persistence": persistence});
        let mut fixture = Fixture::start(3, 1, &spec).await?;
        fixture.kubectl.run(&["delete", "rdc", "orders", &waiting()]).await?;
        fixture.kubectl.feed(&["apply", "-f", "-"], &tests::fixture::manifest(3, 1, &spec)).await?;
        fixture.ready(3).await?;
        fixture.write_anew().await.with_context(|| persistence.to_string())?;
        fixture.verify(3, 1).await?;
    }
    Ok(())
}

/// An autoscaler reads the subresource and looks at the pods that its selector finds.
async fn what_scale_selects_are_the_primaries(fixture: &Fixture) -> Result<()> {
    let path = "/apis/redis.kun.io/v1/namespaces/default/redisclusters/orders/scale";
    // A look that a primary did not answer in time counts one less, until the next.
    let begin = Instant::now();
    let scale = loop {
        let scale: Value = serde_json::from_str(&fixture.kubectl.run(&["get", "--raw", path]).await?)?;
        if scale["status"]["replicas"] == json!(3) {
            break scale;
        }
        ensure!(begin.elapsed() < hung::change(), "{scale:#}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let selector = scale["status"]["selector"].as_str().context("selector")?;
    let names = ["get", "pods", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}"];
    let selected = fixture.kubectl.run(&names).await?;
    let mut primaries = Vec::new();
    for shard in 0..3 {
        primaries.push(fixture.primary(shard).await?.0);
    }
    assert_eq!(selected.split_whitespace().collect::<Vec<_>>(), primaries, "{selector}");
    Ok(())
}

async fn the_endpoints_are_where_members_answer(fixture: &Fixture) -> Result<()> {
    let all = |cluster: &Value| cluster["status"]["endpoints"].as_array().is_some_and(|endpoints| endpoints.len() == 6);
    let cluster = fixture.kubectl.until("rdc", "orders", hung::change(), "telling every endpoint", all).await?;
    let listed: Vec<String> = serde_json::from_value(cluster["status"]["endpoints"].clone())?;
    let mut members: Vec<String> = fixture.addresses().await?.into_values().map(|at| at.to_string()).collect();
    members.sort();
    assert_eq!(listed.iter().collect::<std::collections::BTreeSet<_>>(), members.iter().collect());
    for endpoint in &listed {
        tokio::net::TcpStream::connect(endpoint).await.with_context(|| format!("connect to {endpoint}"))?;
    }
    Ok(())
}

async fn pod_uids(fixture: &Fixture) -> Result<BTreeMap<String, String>> {
    let mut uids = BTreeMap::new();
    for pod in fixture.kubectl.list("pods", "redis.kun.io/cluster=orders").await? {
        let metadata = &pod["metadata"];
        uids.insert(
            metadata["name"].as_str().context("name")?.to_owned(),
            metadata["uid"].as_str().context("uid")?.to_owned(),
        );
    }
    ensure!(!uids.is_empty(), "no pods");
    Ok(uids)
}
