//! A primary without slots, whose first slot is on its way to it: what has moved is gone at the giver.

use resp::{Connection, NodeId, Outcome};
use types::{
    agent::AgentConfig,
    cluster::{AppendOnly, SavePoint},
    names,
};

use crate::{
    crash::assert_readable,
    harness::{AGENT, Cluster, OPERATOR, eventually, patient},
};

const GIVER: usize = 0;
const RECEIVER: usize = 3;
const COPY: usize = 4;

/// Three shards, and a fourth of a primary and its replica, to which a slot of the first one is half moved.
struct Receiving {
    cluster: Cluster,
    slot: u16,
    /// Those that have moved, and those that clients have made since.
    keys: Vec<String>,
}

/// What is kept on disk is a snapshot of before at most.
fn keeping(snapshots: Vec<SavePoint>) -> AgentConfig {
    AgentConfig { append_only: AppendOnly::Off, snapshots, ..patient() }
}

async fn receiving(net: u8, config: AgentConfig) -> Receiving {
    let keeps_snapshots = !config.snapshots.is_empty();
    let mut cluster = Cluster::unhurried(net, config).formed(3, 0).await;
    let hub = cluster.pods[GIVER].ip.to_string();
    for _ in [RECEIVER, COPY] {
        let number = cluster.add_to(3);
        let mut redis = cluster.pods[number].operator().await;
        redis.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]).await.unwrap();
        redis.call(&["CLUSTER", "MEET", &hub, "6379"]).await.unwrap();
    }
    if keeps_snapshots {
        let mut agent = cluster.pods[RECEIVER].login(names::USER_AGENT, AGENT).await;
        agent.call(&["BGSAVE"]).await.unwrap();
        eventually("it has a snapshot", async || cluster.pods[RECEIVER].data("dump.rdb").exists()).await;
    }
    let mut keys: Vec<String> = (0..100).map(|n| format!("{{06S}}k{n}")).collect();
    let slot = resp::slot::key_slot(&keys[0]);
    write(&cluster, &keys).await;
    let (mut from, mut to) = (cluster.pods[GIVER].operator().await, cluster.pods[RECEIVER].operator().await);
    let mut copy = cluster.pods[COPY].operator().await;
    mark(&mut to, slot, "IMPORTING", &cluster.pods[GIVER].id().await).await;
    mark(&mut from, slot, "MIGRATING", &cluster.pods[RECEIVER].id().await).await;
    let receiver = cluster.pods[RECEIVER].id().await;
    let words = ["CLUSTER", "REPLICATE", receiver.as_str()];
    eventually("the replica knows its primary", async || copy.call(&words).await.is_ok()).await;
    eventually("it takes keys", async || to.cluster_info().await.is_ok_and(|info| info.ok)).await;
    let ip = cluster.pods[RECEIVER].ip.to_string();
    let mut words = vec!["MIGRATE", &ip, "6379", "", "0", "60000", "AUTH2", names::USER_OPERATOR, OPERATOR, "KEYS"];
    words.extend(keys.iter().map(String::as_str));
    from.call(&words).await.unwrap();
    let made: Vec<String> = (0..20).map(|n| format!("{{06S}}made{n}")).collect();
    write(&cluster, &made).await;
    keys.extend(made);
    eventually("the replica has everything", async || cluster.pods[COPY].dbsize().await == 120).await;
    assert_eq!([cluster.pods[GIVER].dbsize().await, cluster.pods[RECEIVER].dbsize().await], [0, 120]);
    Receiving { cluster, slot, keys }
}

async fn write(cluster: &Cluster, keys: &[String]) {
    let mut client = cluster.client();
    for key in keys {
        assert!(matches!(client.set(key, key).await, Outcome::Acked(_)));
    }
}

/// Once it has heard of the other one, and that it is a primary.
async fn mark(redis: &mut Connection, slot: u16, what: &str, id: &NodeId) {
    let slot = slot.to_string();
    eventually("the slot is marked", async || {
        redis.call(&["CLUSTER", "SETSLOT", &slot, what, id.as_str()]).await.is_ok()
    })
    .await;
}

impl Receiving {
    /// Goes on as the controller does. Clients find each key where it is, before the slot is handed over and after.
    async fn finish(&self, to: usize) {
        let heir = &self.cluster.pods[to];
        let id = heir.id().await;
        let giver = self.cluster.pods[GIVER].id().await;
        let mut ends = [heir.operator().await, self.cluster.pods[GIVER].operator().await];
        let table = ends[0].cluster_nodes().await.unwrap();
        let marks = table.into_iter().filter(|node| node.flags.myself).flat_map(|node| node.importing);
        assert_eq!(marks.collect::<Vec<_>>(), [(self.slot, giver)]);
        mark(&mut ends[1], self.slot, "MIGRATING", &id).await;
        assert_readable(&self.cluster, &self.keys).await;
        for end in &mut ends {
            mark(end, self.slot, "NODE", &id).await;
        }
        assert_readable(&self.cluster, &self.keys).await;
    }
}

/// Before, it came back at once as it was, and its replica copied that: nobody had the keys any more.
#[tokio::test]
async fn a_killed_primary_without_slots_empties_no_replica() {
    let snapshots = vec![SavePoint { seconds: 3600, changes: 1_000_000 }];
    for (net, snapshots) in [(220, vec![]), (221, snapshots)] {
        let mut found = receiving(net, keeping(snapshots)).await;
        let pods = &mut found.cluster.pods;
        pods[RECEIVER].kill_redis();
        assert_eq!(pods[RECEIVER].ended().await, Some(2));
        pods[RECEIVER].start();
        eventually("the replica leads, or has copied the other one", async || {
            !pods[COPY].is_replica().await || pods[COPY].dbsize().await == 0
        })
        .await;
        assert_eq!(pods[COPY].dbsize().await, 120, "it has copied what was left there");
        eventually("the former primary follows it", async || {
            pods[RECEIVER].is_replica().await && pods[RECEIVER].dbsize().await == 120
        })
        .await;
        found.finish(COPY).await;
    }
}

/// Redis elects nobody in its place. Before, its clients' writes were held for five seconds, and the replica was said to have let the order expire.
#[tokio::test]
async fn a_primary_without_slots_that_stops_gives_no_order_in_vain() {
    let mut found = receiving(222, keeping(vec![])).await;
    let pods = &mut found.cluster.pods;
    pods[RECEIVER].signal(rustix::process::Signal::TERM);
    assert_eq!(pods[RECEIVER].ended_slowly().await, Some(0), "{}", pods[RECEIVER].log());
    let log = pods[RECEIVER].log();
    assert!(log.contains("Redis elects nobody in place of a primary without slots"), "{log}");
    assert!(!log.contains("and did not within"), "{log}");
    // What it has saved as the last one is as much as its replica has.
    pods[RECEIVER].start();
    eventually("it is back with its keys", async || pods[RECEIVER].dbsize().await == 120).await;
    assert!(!pods[RECEIVER].is_replica().await);
    assert_eq!(pods[COPY].dbsize().await, 120);
    found.finish(RECEIVER).await;
}
