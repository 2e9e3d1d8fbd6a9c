//! How long writes wait while another member becomes the primary: on purpose, asked for through the API, beside `CLUSTER
//! FAILOVER` by hand; and because redis-server was killed, beside what Redis does by itself. Both are clusters of the same
//! shape on the same machine with the same node timeout, used in turns.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use resp::{Connection, Credentials, Node, NodeId, Options, Role, slot::key_slot};
use serde_json::{Value, json};
use tests::{fixture::Fixture, oracle, standalone::Standalone};

use crate::{
    prober::{Cut, Prober},
    redis::Nodes,
    report::{Better, Pairs, Report, percentile},
};

/// Failovers of each side, of each shard in turn: a shard rests after each.
const ROUNDS: usize = 12;
/// Primaries killed on each side, of each shard in turn.
const CRASHES: usize = 6;
const SHARDS: u16 = 3;
/// What is our default.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);
/// Network of the reference.
const NET: u8 = 90;

/// Measures both.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let (ours, mut theirs) = (Ours::start().await?, Theirs::start().await?);
    planned(report, &ours, &mut theirs).await?;
    crashes(report, &ours, &mut theirs).await
}

async fn planned(report: &mut Report, ours: &Ours, theirs: &mut Theirs) -> Result<()> {
    let (mut gaps, mut by_hand) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let shard = round % usize::from(SHARDS);
        gaps.push(ours.failover(shard).await?);
        by_hand.push(theirs.failover(shard).await?);
    }
    let pairs = Pairs {
        name: "planned failover, write gap".to_owned(),
        ours: gaps,
        reference: by_hand,
        against: "CLUSTER FAILOVER by hand".to_owned(),
        unit: "ms".to_owned(),
        better: Better::Less,
        bar: "all ≤ 50 ms".to_owned(),
    };
    report.compare(pairs, |gaps, _| percentile(&mut gaps.to_vec(), 1.0) <= 50.0)
}

async fn crashes(report: &mut Report, ours: &Ours, theirs: &mut Theirs) -> Result<()> {
    let (mut gaps, mut alone) = (Vec::new(), Vec::new());
    for round in 0..CRASHES {
        let shard = round % usize::from(SHARDS);
        gaps.push(ours.crash(shard).await?);
        alone.push(theirs.crash(shard).await?);
    }
    let pairs = Pairs {
        name: format!("redis-server of a primary killed, write gap, node timeout {} s", NODE_TIMEOUT.as_secs()),
        ours: gaps,
        reference: alone,
        against: "Redis by itself".to_owned(),
        unit: "ms".to_owned(),
        better: Better::Less,
        bar: "all ≤ 5 s, faster".to_owned(),
    };
    report.compare(pairs, |gaps, ratio| percentile(&mut gaps.to_vec(), 1.0) <= 5_000.0 && ratio > 1.0)
}

/// A cluster of ours.
struct Ours {
    fixture: Fixture,
    credentials: Credentials,
}

impl Ours {
    async fn start() -> Result<Self> {
        let spec = json!({"failover": {"nodeTimeout": format!("{}s", NODE_TIMEOUT.as_secs())}});
        let fixture = Fixture::idle(Standalone::start().await?, SHARDS, 1, &spec).await?;
        let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
        Ok(Self { fixture, credentials })
    }

    async fn prober(&self, shard: usize, cut: Cut) -> Result<Prober> {
        let cluster = self.fixture.ready(SHARDS).await?;
        let slots = cluster["status"]["shards"][shard]["slots"].as_str().context("slots of the shard")?;
        let seeds = self.fixture.addresses().await?.into_values().collect();
        let key = key_where(|slot| within(slots, slot));
        Ok(Prober::start(seeds, Some(self.credentials.clone()), vec![key], cut).await)
    }

    async fn failover(&self, shard: usize) -> Result<f64> {
        let prober = self.prober(shard, Cut::Never).await?;
        let body =
            json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisOperation", "spec": {"failover": {"shard": shard}}});
        self.fixture.act("failover", "rop", &body, "Succeeded").await?;
        prober.stop().await
    }

    async fn crash(&self, shard: usize) -> Result<f64> {
        let prober = self.prober(shard, Cut::Possible).await?;
        let (pod, address) = self.fixture.primary(shard).await?;
        self.fixture.kun.redis_server(address)?.kill()?;
        let back = |cluster: &Value| {
            let members = cluster["status"]["shards"][shard]["members"].as_array();
            let is_back = |m: &Value| m["pod"] == pod.as_str() && m["role"] == "Replica" && m["state"] == "Online";
            members.into_iter().flatten().any(is_back)
        };
        self.fixture.kubectl.until("rdc", "orders", hung::change(), "back as a replica", back).await?;
        prober.stop().await
    }
}

/// A cluster of the same shape that only Redis looks after.
struct Theirs {
    nodes: Nodes,
    /// When the last election was in each shard: the votes of two that follow each other too soon are counted twice.
    elected: [Option<Instant>; SHARDS as usize],
}

impl Theirs {
    async fn start() -> Result<Self> {
        let timeout = NODE_TIMEOUT.as_millis().to_string();
        let settings = ["--cluster-node-timeout", &timeout, "--appendonly", "yes"];
        let nodes = Nodes::cluster(NET, u8::try_from(SHARDS)?, 1, &settings).await?;
        Ok(Self { nodes, elected: [None; SHARDS as usize] })
    }

    /// Waits until the shard has rested; its primary, and the replica.
    async fn rested(&mut self, shard: usize) -> Result<(Node, Node)> {
        let last = self.elected.get_mut(shard).context("shard")?;
        if let Some(at) = last.take() {
            tokio::time::sleep((NODE_TIMEOUT * 4).saturating_sub(at.elapsed())).await;
        }
        let first = *self.nodes.addresses.first().context("a node")?;
        let table = Connection::open(&Options::new(first)).await?.cluster_nodes().await?;
        let slot = slot_of(shard);
        let primary = table.iter().find(|node| node.owns(slot)).context("owner of a slot")?.clone();
        let replica = table.iter().find(|node| node.primary.as_ref() == Some(&primary.id)).context("its replica")?;
        Ok((primary, replica.clone()))
    }

    async fn prober(&self, shard: usize, cut: Cut) -> Prober {
        let key = key_where(|slot| slot == slot_of(shard));
        Prober::start(self.nodes.addresses.clone(), None, vec![key], cut).await
    }

    async fn failover(&mut self, shard: usize) -> Result<f64> {
        let (_, replica) = self.rested(shard).await?;
        let prober = self.prober(shard, Cut::Never).await;
        let address = replica.address.context("address of the replica")?;
        Connection::open(&Options::new(address)).await?.call(&["CLUSTER", "FAILOVER"]).await?;
        self.elected_now(shard, address).await?;
        prober.stop().await
    }

    async fn crash(&mut self, shard: usize) -> Result<f64> {
        let (primary, replica) = self.rested(shard).await?;
        let prober = self.prober(shard, Cut::Possible).await;
        let (dead, heir) = (primary.address.context("address")?, replica.address.context("address")?);
        self.nodes.kill(dead).await?;
        self.elected_now(shard, heir).await?;
        let gap = prober.stop().await?;
        self.nodes.start_again(dead).await?;
        until_follows(dead, &replica.id).await?;
        Ok(gap)
    }

    /// Waits until this replica is the primary.
    async fn elected_now(&mut self, shard: usize, replica: SocketAddr) -> Result<()> {
        let begin = Instant::now();
        let mut connection = Connection::open(&Options::new(replica)).await?;
        while !matches!(connection.role().await?, Role::Primary { .. }) {
            ensure!(begin.elapsed() < hung::change(), "{replica} does not take over");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        *self.elected.get_mut(shard).context("shard")? = Some(Instant::now());
        Ok(())
    }
}

/// Waits until a node that came back is a replica in sync.
async fn until_follows(address: SocketAddr, primary: &NodeId) -> Result<()> {
    let begin = Instant::now();
    let mut connection = Connection::open(&Options::new(address)).await?;
    loop {
        let table = connection.cluster_nodes().await?;
        let follows = table.iter().any(|node| node.flags.myself && node.primary.as_ref() == Some(primary));
        if follows && connection.info(&["replication"]).await?.get("master_link_status") == Some("up") {
            return Ok(());
        }
        ensure!(begin.elapsed() < hung::change(), "{address} does not follow");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A slot in the middle of a shard of the reference.
fn slot_of(shard: usize) -> u16 {
    let share = plan::SLOTS / SHARDS;
    u16::try_from(shard).unwrap_or_default() * share + share / 2
}

fn key_where(fits: impl Fn(u16) -> bool) -> String {
    let mut keys = (0..).map(|n: u64| format!("probe:{n}"));
    keys.find(|key| fits(key_slot(key))).unwrap_or_default()
}

/// A key in each of these slots' shards, for who probes all of them.
pub(crate) fn keys_of(cluster: &Value) -> Vec<String> {
    let shards = cluster["status"]["shards"].as_array();
    let slots = shards.into_iter().flatten().filter_map(|shard| shard["slots"].as_str());
    slots.map(|slots| key_where(|slot| within(slots, slot))).collect()
}

fn within(slots: &str, slot: u16) -> bool {
    slots.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}
