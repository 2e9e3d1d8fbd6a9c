//! What must be true after the blows of a round, and stay true.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use resp::{Command, Connection, Reply};
use tests::{
    fixture::Fixture,
    oracle::{self, Shape},
    story,
};
use types::names;

const PAUSE: Duration = Duration::from_millis(250);

/// Waits until the cluster is Ready, T1–T6 hold and nothing is under way.
pub(super) async fn down(fixture: &Fixture, shape: Shape) -> Result<()> {
    story::settled(&fixture.kubectl, ("default", "orders"), shape, async || unfinished(fixture, shape).await).await
}

/// What is still under way: an action, a backup, a process that belongs to no pod.
async fn unfinished(fixture: &Fixture, shape: Shape) -> Result<Option<String>> {
    for resource in ["rop", "rbk"] {
        for item in fixture.kubectl.list(resource, "").await? {
            let phase = item["status"]["phase"].as_str().unwrap_or("Pending");
            if !matches!(phase, "Succeeded" | "Completed" | "Failed" | "Cancelled") {
                return Ok(Some(format!("{resource} {} is {phase}", item["metadata"]["name"])));
            }
        }
    }
    let wanted = usize::from(shape.shards) * usize::from(shape.replicas + 1);
    let processes = fixture.kun.pod_processes();
    let count = |word: &str| processes.iter().filter(|process| process.command.contains(word)).count();
    let (servers, agents) = (count("redis-server 127."), count(" agent"));
    let odd = servers != wanted || agents != wanted;
    Ok(odd.then(|| format!("{servers} servers and {agents} agents for {wanted} pods: {processes:#?}")))
}

/// Waits until the first redis-server of the cluster runs.
pub(super) async fn a_server_runs(fixture: &Fixture) -> Result<()> {
    let begin = Instant::now();
    while !fixture.kun.pod_processes().iter().any(|process| process.command.contains("redis-server 127.")) {
        ensure!(begin.elapsed() < hung::change(), "no redis-server starts");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// What each member says of all of them, and of its copy: for whoever has to find out why a campaign failed.
pub(super) async fn tables(fixture: &Fixture) -> Result<String> {
    let operator = oracle::credentials(&fixture.kubectl, "default", "orders", names::USER_OPERATOR).await?;
    let mut told = String::new();
    for (pod, address) in fixture.addresses().await? {
        let said = async {
            let mut redis = oracle::open(address, &operator).await?;
            let (nodes, info) = (redis.call(&["CLUSTER", "NODES"]).await?, redis.info(&["replication"]).await?);
            let copy: Vec<String> = info.iter().map(|(name, value)| format!("{name}={value}")).collect();
            anyhow::Ok(format!("{}{}\n", nodes.text().unwrap_or_default(), copy.join(" ")))
        };
        let said = said.await.unwrap_or_else(|error| format!("{error:#}\n"));
        told.push_str(&format!("{pod} says:\n{said}"));
    }
    Ok(told)
}

/// Nobody writes: each replica holds exactly what its primary holds. Where the machine stands still roles move between two questions; what really
/// differs differs at each look.
pub(super) async fn copies_are_equal(fixture: &Fixture) -> Result<()> {
    let begin = Instant::now();
    loop {
        match are_equal_now(fixture).await {
            Err(_) if begin.elapsed() < hung::process() => tokio::time::sleep(PAUSE).await,
            seen => return seen,
        }
    }
}

async fn are_equal_now(fixture: &Fixture) -> Result<()> {
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
    let mut primaries: BTreeMap<String, (String, SocketAddr)> = BTreeMap::new();
    let mut replicas = Vec::new();
    for (pod, address) in fixture.addresses().await? {
        let shard = pod.rsplit_once('-').map(|(shard, _)| shard.to_owned()).context("a pod of a shard")?;
        let mut connection = oracle::open(address, &credentials).await?;
        match connection.info(&["replication"]).await?.get("role") {
            Some("master") => drop(primaries.insert(shard, (pod, address))),
            _ => replicas.push((shard, pod, address)),
        }
    }
    for (shard, pod, address) in replicas {
        let (leader, at) = primaries.get(&shard).with_context(|| format!("no primary of {shard}"))?;
        let mut replica = oracle::open(address, &credentials).await?;
        let mut primary = oracle::open(*at, &credentials).await?;
        caught_up(&mut primary, &mut replica).await.with_context(|| format!("{pod} and {leader}"))?;
        replica.call(&["READONLY"]).await?;
        let (ours, theirs) = (contents(&mut replica).await?, contents(&mut primary).await?);
        let odd: Vec<_> = theirs.iter().filter(|(key, value)| ours.get(*key) != Some(value)).take(5).collect();
        ensure!(ours == theirs, "{pod} has {} keys, {leader} {}: {odd:?}", ours.len(), theirs.len());
    }
    Ok(())
}

async fn caught_up(primary: &mut Connection, replica: &mut Connection) -> Result<()> {
    let begin = Instant::now();
    loop {
        let goal = primary.info(&["replication"]).await?.number("master_repl_offset");
        let info = replica.info(&["replication"]).await?;
        let offset = info.number("slave_repl_offset");
        if offset >= goal && info.get("master_link_status") == Some("up") {
            return Ok(());
        }
        ensure!(begin.elapsed() < hung::change(), "offset {offset:?} of {goal:?}: {info:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// All keys and values of one server.
async fn contents(connection: &mut Connection) -> Result<BTreeMap<String, String>> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let reply = connection.call(&["SCAN", &cursor, "COUNT", "2000"]).await?;
        let [next, found] = reply.items().context("an answer to SCAN")? else { bail!("SCAN: {reply:?}") };
        keys.extend(found.items().into_iter().flatten().filter_map(Reply::text).map(str::to_owned));
        cursor = next.text().context("cursor")?.to_owned();
        if cursor == "0" {
            break;
        }
    }
    let mut contents = BTreeMap::new();
    for batch in keys.chunks(1000) {
        let ask: Vec<Command> = batch.iter().map(|key| Command::new("GET").arg(key)).collect();
        for (key, value) in batch.iter().zip(connection.pipeline(&ask).await?) {
            contents.insert(key.clone(), value.text().map_or_else(|| format!("{value:?}"), str::to_owned));
        }
    }
    Ok(contents)
}

/// What has been done so far: by Redis' own counts, and to the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// Commands that change a topology, on each node since it started.
    pub(super) commands: BTreeMap<SocketAddr, u64>,
    /// The last change of the RedisCluster.
    object: String,
}

pub(super) async fn work(fixture: &Fixture) -> Result<Work> {
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", names::USER_OPERATOR).await?;
    let mut commands = BTreeMap::new();
    for address in fixture.addresses().await?.into_values() {
        let stats = oracle::open(address, &credentials).await?.info(&["commandstats"]).await?;
        let count = CHANGES.iter().filter_map(|name| {
            let stat = stats.get(&format!("cmdstat_{name}"))?;
            stat.split(',').next()?.strip_prefix("calls=")?.parse::<u64>().ok()
        });
        commands.insert(address, count.sum());
    }
    let object = fixture.cluster().await?["metadata"]["resourceVersion"].to_string();
    Ok(Work { commands, object })
}

/// Commands by which the controller and the agents change who owns what and who follows whom.
const CHANGES: &[&str] = &[
    "cluster|setslot",
    "cluster|addslots",
    "cluster|addslotsrange",
    "cluster|delslots",
    "cluster|delslotsrange",
    "cluster|meet",
    "cluster|forget",
    "cluster|replicate",
    "cluster|failover",
    "cluster|set-config-epoch",
    "cluster|bumpepoch",
    "cluster|saveconfig",
    "config|set",
    "function|load",
    "migrate",
];

/// So long nothing may be done to a cluster that is at rest.
const REST: Duration = Duration::from_secs(2);

/// A cluster that is satisfied comes to rest: nothing is done to it, and nothing is written about it.
pub(super) async fn at_rest(fixture: &Fixture) -> Result<()> {
    let begin = Instant::now();
    let mut before = work(fixture).await?;
    loop {
        tokio::time::sleep(REST).await;
        let now = work(fixture).await?;
        if now == before {
            return Ok(());
        }
        // Where the machine stands still a look goes without an answer, and the status says so.
        ensure!(begin.elapsed() < hung::change(), "no rest: {before:?}, then {now:?}");
        before = now;
    }
}

/// More commands than any operation needs, after however many blows: 16384 slots are moved by some commands each.
const MOST: u64 = 4000;
const MOST_OF_A_MOVE: u64 = 120_000;

/// Whoever does the same again and again is found here, although all is well in the end.
pub(super) async fn bounded(fixture: &Fixture, before: BTreeMap<SocketAddr, u64>, slots_move: bool) -> Result<()> {
    let now = work(fixture).await?.commands;
    // A process that was started again counts from nothing.
    let of = |address: &SocketAddr, count: u64| match before.get(address) {
        Some(earlier) if *earlier <= count => count - earlier,
        _ => count,
    };
    let done: u64 = now.iter().map(|(address, count)| of(address, *count)).sum();
    let most = if slots_move { MOST_OF_A_MOVE } else { MOST };
    ensure!(done <= most, "{done} commands in one round, {most} are enough: {now:?}");
    Ok(())
}

/// Nobody of ours panicked: neither kun nor an agent of a pod that is there.
pub(super) fn nobody_panicked(fixture: &Fixture) -> Result<()> {
    let mut logs = vec![fixture.kun.log()?];
    for pod in fs::read_dir(fixture.kun.data().join("node/pods"))? {
        logs.push(fs::read_to_string(pod?.path().join("log")).unwrap_or_default());
    }
    let panic = logs.iter().flat_map(|log| log.lines()).find(|line| line.contains("panicked at"));
    panic.map_or(Ok(()), |line| bail!("{line}"))
}
