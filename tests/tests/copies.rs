//! Which copy of a shard becomes its primary: one that is not whole never replaces one that is, unless a person says so.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use resp::{Connection, Role};
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::{
    fixture::{self, Fixture},
    left_behind::{Pair, is_refused, is_told, left_behind, mend, node_timeout, operator, signal, spec, wait_until},
    story,
};

/// Nothing is lost: with a replication that works again the shard is whole, and its primary who it was.
async fn keeps_its_role(fixture: Fixture, pair: &Pair) -> Result<()> {
    mend(&fixture, pair).await?;
    fixture.ready(3).await?;
    ensure!(fixture.primary(0).await?.0 == pair.pod, "the replica took over");
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Measured before this was so: 20,000 of 20,000 writes of one minute lost.
#[tokio::test]
async fn a_primary_that_is_killed_beside_a_replica_left_behind_comes_back_with_everything() -> Result<()> {
    let fixture = Fixture::start(3, 1, &spec()).await?;
    let pair = left_behind(&fixture).await?;
    fixture.kun.redis_server(pair.primary)?.kill()?;
    let serves = |cluster: &Value| {
        let members = cluster["status"]["shards"][0]["members"].as_array();
        members
            .into_iter()
            .flatten()
            .any(|m| m["pod"] == pair.pod.as_str() && m["role"] == "Primary" && m["state"] == "Online")
    };
    wait_until("the primary is back", async || Ok(fixture.kun.redis_server(pair.primary).is_ok())).await?;
    fixture.kubectl.until("rdc", "orders", hung::change(), "served by its former primary", serves).await?;
    fixture.writer()?.progress(300, hung::change()).await?;
    keeps_its_role(fixture, &pair).await
}

/// The same with a primary that hangs: everybody gives it up, and it comes back.
#[tokio::test]
async fn a_primary_that_hangs_beside_a_replica_left_behind_is_waited_for_and_that_is_said() -> Result<()> {
    let fixture = Fixture::start(3, 1, &spec()).await?;
    let pair = left_behind(&fixture).await?;
    signal(&fixture, pair.primary, Signal::STOP)?;
    fixture.kubectl.until("rdc", "orders", hung::change(), "refusing a copy that is not whole", is_refused).await?;
    wait_until("an event says so", async || is_told(&fixture).await).await?;
    // Longer than Redis takes to give a primary up and to elect another.
    tokio::time::sleep(2 * node_timeout() + Duration::from_secs(2)).await;
    let shard = fixture.cluster().await?["status"]["shards"][0].clone();
    ensure!(shard["primary"].as_str().is_none_or(|now| now == pair.pod), "the replica took over: {shard:#}");
    signal(&fixture, pair.primary, Signal::CONT)?;
    // Once it is in sync again the replica may take over whom the others still take for dead.
    let mut other = operator(&fixture, fixture.primary(1).await?.1).await?;
    wait_until("nobody is taken for dead", async || {
        Ok(other.cluster_nodes().await?.iter().all(|node| !node.flags.failed))
    })
    .await?;
    keeps_its_role(fixture, &pair).await
}

/// A person's order goes by admission, which refuses it in the wrong mode, to the member whose agent holds it back: only all of them
/// together let it through.
#[tokio::test]
async fn a_copy_that_is_not_whole_is_promoted_on_an_order_that_accepts_the_loss() -> Result<()> {
    let mut fixture = Fixture::start(3, 1, &spec()).await?;
    let pair = left_behind(&fixture).await?;
    signal(&fixture, pair.primary, Signal::STOP)?;
    fixture.kubectl.until("rdc", "orders", hung::change(), "refusing a copy that is not whole", is_refused).await?;
    let coordinated = json!({"apiVersion": types::API_VERSION, "kind": "RedisOperation",
        "spec": {"failover": {"shard": 0, "acceptDataLoss": true}}});
    let path = "/apis/redis.kun.io/v1/namespaces/default/redisclusters/orders/failover";
    let refused = fixture.kubectl.refused(&["create", "--raw", path, "-f", "-"], &coordinated.to_string()).await?;
    ensure!(refused.contains("spec.failover.acceptDataLoss"), "{refused}");
    let order = json!({"apiVersion": types::API_VERSION, "kind": "RedisOperation",
        "spec": {"failover": {"shard": 0, "mode": "Force", "acceptDataLoss": true}}});
    fixture.act("failover", "rop", &order, "Succeeded").await?;
    let (heir, address) = fixture.primary(0).await?;
    ensure!(heir != pair.pod && address == pair.replica, "{heir} at {address}");
    fixture.write_after_a_loss().await?;
    mend(&fixture, &pair).await?;
    signal(&fixture, pair.primary, Signal::CONT)?;
    fixture.ready(3).await?;
    // Who is the primary by now is not asked: on a machine that stands still the former one may have been elected, as a replica of the
    // heir that has all of this.
    fixture.verify(3, 1).await?;
    Ok(())
}

/// By itself it could not tell how long its primary lived meanwhile, and its agent does not let it stand. Nobody proves a primary dead that
/// only hangs, so before this the shard had none until that one came back.
#[tokio::test]
async fn a_replica_that_stood_still_while_its_primary_was_lost_is_promoted_on_order() -> Result<()> {
    // Longer than the replica stands still, so that its agent looks before Redis would elect.
    let fixture = Fixture::start(3, 1, &json!({"failover": fixture::node_timeout(20)})).await?;
    let (pod, address) = fixture.primary(0).await?;
    let members = fixture.addresses().await?;
    let replica = members.iter().find(|(name, _)| name.starts_with("orders-0-") && **name != pod);
    let replica = *replica.context("a replica of shard 0")?.1;
    let (mut primary, mut heir) = (operator(&fixture, address).await?, operator(&fixture, replica).await?);
    has_sent_everything(&mut primary).await?;
    signal(&fixture, address, Signal::STOP)?;
    // A host that is gone closes no connection; the link is lost all the same.
    heir.config_set("repl-timeout", "1").await?;
    wait_until("the link is down", async || {
        Ok(heir.info(&["replication"]).await?.get("master_link_status") == Some("down"))
    })
    .await?;
    heir.config_set("repl-timeout", "60").await?;
    signal(&fixture, replica, Signal::STOP)?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    signal(&fixture, replica, Signal::CONT)?;
    // Where its agent stood still as well, it may be elected before that one looks.
    wait_until("its agent does not let it stand, or it is elected", async || {
        let held_back = heir.cluster_nodes().await?.iter().any(|node| node.flags.myself && node.flags.no_failover);
        Ok(held_back || matches!(heir.role().await?, Role::Primary { .. }))
    })
    .await?;
    story::replaced(&fixture.kubectl, "orders", &pod).await?;
    signal(&fixture, address, Signal::CONT)?;
    fixture.ready(3).await?;
    fixture.verify(3, 1).await?;
    Ok(())
}

/// An agent asks its primary's Redis twice in this time; a word that is older than three seconds does not count.
const TWO_QUESTIONS: Duration = Duration::from_secs(2);

/// No write is on its way to the replica when its primary stops.
async fn has_sent_everything(primary: &mut Connection) -> Result<()> {
    let pause = hung::answer().as_millis().to_string();
    wait_until("the replica's agent knows that it has everything", async || {
        primary.call(&["CLIENT", "PAUSE", &pause, "WRITE"]).await?;
        let info = primary.info(&["replication"]).await?;
        let offset = info.number("master_repl_offset");
        if !info.replicas().iter().all(|replica| Some(replica.offset) == offset) {
            return Ok(false);
        }
        // Its agent asks the primary's once a second. Where the machine stood still meanwhile, the last word is older than counts.
        let begin = Instant::now();
        tokio::time::sleep(TWO_QUESTIONS).await;
        Ok(begin.elapsed() < TWO_QUESTIONS + TWO_QUESTIONS / 4)
    })
    .await
}

/// Emptied under it and killed, the primary is back at its address within a moment, blank, where its replica looks for it. Measured before
/// this was so: 5 of 7 runs lost the whole shard.
#[tokio::test]
async fn a_primary_whose_volume_was_emptied_never_empties_its_replica() -> Result<()> {
    let fixture = Fixture::start(3, 1, &json!({})).await?;
    let (pod, address) = fixture.primary(0).await?;
    let mut primary = operator(&fixture, address).await?;
    has_sent_everything(&mut primary).await?;
    signal(&fixture, address, Signal::STOP)?;
    empty_volume(&fixture, address)?;
    fixture.kun.redis_server(address)?.kill()?;
    story::replaced(&fixture.kubectl, "orders", &pod).await?;
    fixture.ready(3).await?;
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Only the whole shows it: agents that start both, Redis' own start, and the plan. Before, its keys were said to be gone for good, which its replica had,
/// and no order helped.
#[tokio::test]
async fn the_copy_of_a_shard_that_ended_leads_it_on_an_order_where_its_primary_is_empty() -> Result<()> {
    let spec = json!({"persistence": {"appendOnly": "Always"}, "failover": fixture::node_timeout(10)});
    let fixture = Fixture::start(3, 1, &spec).await?;
    let (pod, address) = fixture.primary(0).await?;
    let of_shard = |other: &&String| other.starts_with("orders-0-") && **other != pod;
    let addresses = fixture.addresses().await?;
    let (copy, replica) = addresses.iter().find(|(other, _)| of_shard(other)).context("no replica")?;
    let mut primary = operator(&fixture, address).await?;
    has_sent_everything(&mut primary).await?;
    for member in [address, *replica] {
        signal(&fixture, member, Signal::STOP)?;
    }
    empty_volume(&fixture, address)?;
    // The replica first: it starts without a primary, and what it has is what its own disk has.
    for member in [*replica, address] {
        fixture.kun.redis_server(member)?.kill()?;
    }
    let names =
        format!("of its replicas ({}) none is known to have had everything", copy.trim_start_matches("orders-"));
    let is_told = |cluster: &Value| cluster["status"]["conditions"].to_string().contains(&names);
    let is_led = |cluster: &Value| cluster["status"]["shards"][0]["primary"] == *copy;
    let is_over = |cluster: &Value| is_told(cluster) || is_led(cluster);
    let cluster = fixture.kubectl.until("rdc", "orders", hung::change(), "a person is asked", is_over).await?;
    // Where its link was up for a moment, it is known to have everything, and nobody is asked.
    if is_told(&cluster) {
        let order = json!({"apiVersion": types::API_VERSION, "kind": "RedisOperation",
            "spec": {"failover": {"shard": 0, "candidate": copy, "mode": "Force", "acceptDataLoss": true}}});
        fixture.act("failover", "rop", &order, "Succeeded").await?;
    }
    story::replaced(&fixture.kubectl, "orders", &pod).await?;
    fixture.ready(3).await?;
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Removes what lies in the data directory of a member.
fn empty_volume(fixture: &Fixture, address: SocketAddr) -> Result<()> {
    let pid = fixture.kun.redis_server(address)?.pid;
    for entry in std::fs::read_dir(std::fs::read_link(format!("/proc/{pid}/cwd"))?)? {
        let path = entry?.path();
        if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
    }
    Ok(())
}

/// The primaries of shards 0 and 1, which have sent everything to their replicas and take no writes any more.
async fn two_of_three(fixture: &Fixture) -> Result<[(String, SocketAddr); 2]> {
    let lost = [fixture.primary(0).await?, fixture.primary(1).await?];
    let [mut first, mut second] = [operator(fixture, lost[0].1).await?, operator(fixture, lost[1].1).await?];
    loop {
        has_sent_everything(&mut first).await?;
        has_sent_everything(&mut second).await?;
        // The pause of the first may have ended while the second was looked at.
        let begin = Instant::now();
        has_sent_everything(&mut first).await?;
        if begin.elapsed() < hung::answer() / 2 {
            break;
        }
    }
    for (_, address) in &lost {
        signal(fixture, *address, Signal::STOP)?;
    }
    Ok(lost)
}

/// Neither primary leads its shard any more, and nothing is lost. Where the machine stood still while they were killed, nobody knows any more that
/// the copies had everything until then: a person says so.
async fn both_are_replaced(fixture: Fixture, lost: &[(String, SocketAddr); 2]) -> Result<()> {
    let is_refused = |cluster: &Value, shard: usize| {
        let conditions = cluster["status"]["conditions"].as_array();
        let told = format!(" of shard {shard} is not promoted: its primary");
        conditions.into_iter().flatten().any(|one| one["message"].as_str().unwrap_or_default().contains(&told))
    };
    let is_replaced = |cluster: &Value, shard: usize| {
        let now = cluster["status"]["shards"][shard]["primary"].as_str();
        now.is_some_and(|now| now != lost[shard].0)
    };
    let is_over = |cluster: &Value| (0..2).all(|shard| is_replaced(cluster, shard) || is_refused(cluster, shard));
    loop {
        let cluster =
            fixture.kubectl.until("rdc", "orders", hung::change(), "with two other primaries", is_over).await?;
        // What was refused is told for a moment longer.
        let is_due = |shard: &usize| is_refused(&cluster, *shard) && !is_replaced(&cluster, *shard);
        let Some(shard) = (0..2).find(is_due) else { break };
        fixture.act("failover", "rop", &force(shard, true), "Succeeded").await?;
        let replaced = |cluster: &Value| is_replaced(cluster, shard);
        fixture.kubectl.until("rdc", "orders", hung::change(), "with another primary", replaced).await?;
    }
    fixture.ready(3).await?;
    fixture.verify(3, 1).await?;
    Ok(())
}

fn force(shard: usize, accepts: bool) -> Value {
    json!({"apiVersion": types::API_VERSION, "kind": "RedisOperation",
        "spec": {"failover": {"shard": shard, "mode": "Force", "acceptDataLoss": accepts}}})
}

/// Both servers are killed at once.
async fn both_end_and_are_replaced(fixture: Fixture, lost: &[(String, SocketAddr); 2]) -> Result<()> {
    for (_, address) in lost {
        fixture.kun.redis_server(*address)?.kill()?;
    }
    both_are_replaced(fixture, lost).await
}

/// Nobody can be elected: two of three are gone, and come back with nothing. Before this was so the cluster stayed down.
#[tokio::test]
async fn most_primaries_that_end_at_once_and_keep_nothing_are_replaced() -> Result<()> {
    let spec = json!({"persistence": {"appendOnly": "Off"}, "failover": fixture::node_timeout(10)});
    let fixture = Fixture::start(3, 1, &spec).await?;
    let lost = two_of_three(&fixture).await?;
    both_end_and_are_replaced(fixture, &lost).await
}

/// As `save` of the spec below.
const SELDOM: &str = "86400 1000000";

/// Each of their agents waits for the other's vote, and would start with its snapshot in the end, which its replica would copy.
#[tokio::test]
async fn most_primaries_that_end_at_once_beside_snapshots_are_replaced() -> Result<()> {
    let persistence = json!({"appendOnly": "Off", "snapshots": [{"seconds": 86400, "changes": 1_000_000}]});
    let fixture =
        Fixture::start(3, 1, &json!({"persistence": persistence, "failover": fixture::node_timeout(10)})).await?;
    for shard in 0..2 {
        let mut primary = operator(&fixture, fixture.primary(shard).await?.1).await?;
        primary.config_set("save", "1 1").await?;
        wait_until("a snapshot is saved", async || {
            let info = primary.info(&["persistence"]).await?;
            Ok(info.number("rdb_saves").is_some_and(|saves| saves > 0)
                && info.flag("rdb_bgsave_in_progress") == Some(false))
        })
        .await?;
        primary.config_set("save", SELDOM).await?;
    }
    fixture.writer()?.progress(300, hung::change()).await?;
    let lost = two_of_three(&fixture).await?;
    both_end_and_are_replaced(fixture, &lost).await
}

/// Other nodes run in their places by then, so only the agents of those pods can still tell that the former ones have ended.
#[tokio::test]
async fn most_primaries_whose_volumes_are_emptied_at_once_are_replaced() -> Result<()> {
    let spec = json!({"persistence": {"appendOnly": "Always"}, "failover": fixture::node_timeout(10)});
    let fixture = Fixture::start(3, 1, &spec).await?;
    let lost = two_of_three(&fixture).await?;
    for (_, address) in &lost {
        empty_volume(&fixture, *address)?;
    }
    both_end_and_are_replaced(fixture, &lost).await
}

/// Nobody proves that a process has ended whose pod was replaced: a person says so, and is told how, with the numbers.
#[tokio::test]
async fn most_primaries_whose_pods_are_replaced_without_volumes_wait_for_an_order() -> Result<()> {
    let spec = json!({"storage": null, "failover": fixture::node_timeout(10)});
    let fixture = Fixture::start(3, 1, &spec).await?;
    let lost = two_of_three(&fixture).await?;
    let pods: Vec<&str> = lost.iter().map(|(pod, _)| pod.as_str()).collect();
    fixture
        .kubectl
        .run(&[&["delete", "pod", "--force", "--grace-period=0", "--wait=false"], &pods[..]].concat())
        .await?;
    let is_told = |cluster: &Value| {
        let conditions = cluster["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["reason"] == "NeedsAPerson"
                && message.contains("quorum lost: 1 of 3 primaries can vote")
                && message.contains("create a failover of shard 0 that names 0-")
                && message.contains(" as candidate, with mode Force and acceptDataLoss")
        })
    };
    fixture.kubectl.until("rdc", "orders", hung::change(), "telling the way out", is_told).await?;
    let refused = fixture.act("failover", "rop", &force(0, false), "Failed").await?;
    ensure!(refused["status"].to_string().contains("acceptDataLoss"), "{refused:#}");
    fixture.act("failover", "rop", &force(0, true), "Succeeded").await?;
    // Two of three are left, who elect the other one's heir.
    both_are_replaced(fixture, &lost).await
}
