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
    /// The receiver's record of the cluster from before its replica was one.
    former_record: Vec<u8>,
}

/// What is kept on disk is a snapshot of before at most.
fn keeping(snapshots: Vec<SavePoint>) -> AgentConfig {
    AgentConfig { append_only: AppendOnly::Off, snapshots, ..patient() }
}

async fn receiving(net: u8, config: AgentConfig) -> Receiving {
    let keeps_snapshots = !config.snapshots.is_empty();
    let mut cluster = Cluster::unhurried(net, config).formed(3, 0).await;
    add_receiver(&mut cluster).await;
    let [giver, receiver, copy] = [GIVER, RECEIVER, COPY].map(|number| &cluster.pods[number]);
    if keeps_snapshots {
        let mut agent = receiver.login(names::USER_AGENT, AGENT).await;
        agent.call(&["BGSAVE"]).await.unwrap();
        eventually("it has a snapshot", async || receiver.data("dump.rdb").exists()).await;
    }
    let mut keys: Vec<String> = (0..100).map(|n| format!("{{06S}}k{n}")).collect();
    let slot = resp::slot::key_slot(&keys[0]);
    write(&cluster, &keys).await;
    let mut from = giver.operator().await;
    let id = receiver.id().await;
    mark(&mut receiver.operator().await, slot, "IMPORTING", &giver.id().await).await;
    mark(&mut from, slot, "MIGRATING", &id).await;
    let former_record = std::fs::read(receiver.data("nodes.conf")).unwrap();
    copy.operator().await.call(&["CLUSTER", "REPLICATE", id.as_str()]).await.unwrap();
    cluster.wait_agreed().await;
    let ip = receiver.ip.to_string();
    let mut words = vec!["MIGRATE", &ip, "6379", "", "0", "60000", "AUTH2", names::USER_OPERATOR, OPERATOR, "KEYS"];
    words.extend(keys.iter().map(String::as_str));
    from.call(&words).await.unwrap();
    let made: Vec<String> = (0..20).map(|n| format!("{{06S}}made{n}")).collect();
    write(&cluster, &made).await;
    keys.extend(made);
    eventually("the replica has everything", async || copy.dbsize().await == 120).await;
    eventually("the agents have noted what is where", async || {
        let following = cluster.report(copy).await.and_then(|report| report.following);
        let is_whole = following.is_some_and(|following| following.current_millis.is_some());
        is_whole && receiver.data("kun-alive.json").exists()
    })
    .await;
    assert_eq!([giver.dbsize().await, receiver.dbsize().await], [0, 120]);
    Receiving { cluster, slot, keys, former_record }
}

/// A node never learns who owns a slot that it imports (`clusterUpdateSlotsConfigWith`), and answers CLUSTERDOWN of one that nobody owns. So it knows all
/// before its slot is marked.
async fn add_receiver(cluster: &mut Cluster) {
    let hub = cluster.pods[GIVER].ip.to_string();
    for _ in [RECEIVER, COPY] {
        let number = cluster.add_to(3);
        let mut redis = cluster.pods[number].operator().await;
        redis.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]).await.unwrap();
        redis.call(&["CLUSTER", "MEET", &hub, "6379"]).await.unwrap();
    }
    cluster.wait_agreed().await;
}

async fn write(cluster: &Cluster, keys: &[String]) {
    let mut client = cluster.client();
    for key in keys {
        assert!(matches!(client.set(key, key).await, Outcome::Acked(_)));
    }
}

/// Once it has heard that the other one is a primary.
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

/// Before, it came back at once as it was, and its replica copied that: nobody had the keys any more. Or beside its heir, where its record was of before.
#[tokio::test]
async fn a_killed_primary_without_slots_empties_no_replica() {
    let snapshots = vec![SavePoint { seconds: 3600, changes: 1_000_000 }];
    for (net, snapshots, is_record_late) in [(220, vec![], false), (221, snapshots, true)] {
        let mut found = receiving(net, keeping(snapshots)).await;
        let pods = &mut found.cluster.pods;
        pods[RECEIVER].kill_redis();
        assert_eq!(pods[RECEIVER].ended().await, Some(2));
        if is_record_late {
            std::fs::write(pods[RECEIVER].data("nodes.conf"), &found.former_record).unwrap();
        }
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
