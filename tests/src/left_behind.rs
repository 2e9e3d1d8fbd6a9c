//! A replica that is left behind: its primary acknowledges what it never gets, as after a broken link.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use resp::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use types::names;

use crate::{
    fixture::{self, Fixture},
    oracle,
};

/// A node timeout that is longer than anything takes that is done here, in seconds.
const NODE_TIMEOUT: u64 = 10;

/// The same on this machine.
#[must_use]
pub fn node_timeout() -> Duration {
    hung::node_timeout(NODE_TIMEOUT)
}

/// A cluster with it, and a primary whose disk has all it acknowledged.
#[must_use]
pub fn spec() -> Value {
    json!({"failover": fixture::node_timeout(NODE_TIMEOUT), "persistence": {"appendOnly": "Always"}})
}

/// A connection of KUN's own user.
pub async fn operator(fixture: &Fixture, address: SocketAddr) -> Result<Connection> {
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", names::USER_OPERATOR).await?;
    oracle::open(address, &credentials).await
}

/// A signal to the server of a member.
pub fn signal(fixture: &Fixture, address: SocketAddr, signal: Signal) -> Result<()> {
    let pid = fixture.kun.redis_server(address)?.pid;
    Ok(kill_process(Pid::from_raw(pid).context("pid")?, signal)?)
}

/// The only replica of shard 0, its primary, and the password of their replication.
#[derive(Debug)]
pub struct Pair {
    /// The primary's pod.
    pub pod: String,
    /// The primary's address.
    pub primary: SocketAddr,
    /// The replica's address.
    pub replica: SocketAddr,
    password: String,
}

/// Breaks the replication of shard 0's replica and nothing else, and waits until its primary is well ahead of it.
pub async fn left_behind(fixture: &Fixture) -> Result<Pair> {
    let (pod, primary) = fixture.primary(0).await?;
    let addresses = fixture.addresses().await?;
    let of_shard = |name: &&String| name.starts_with("orders-0-") && **name != pod;
    let replica = *addresses.keys().find(of_shard).and_then(|name| addresses.get(name)).context("replica")?;
    let (mut first, mut second) = (operator(fixture, primary).await?, operator(fixture, replica).await?);
    let password = second.config_get(&["masterauth"]).await?.remove("masterauth").context("masterauth")?;
    second.config_set("masterauth", "wrong").await?;
    // Its primary gives up a replica that acknowledges nothing for two seconds; it is not let in again.
    first.config_set("repl-timeout", "1").await?;
    signal(fixture, replica, Signal::STOP)?;
    wait_until("the replica is given up", async || {
        Ok(first.info(&["replication"]).await?.number("connected_slaves") == Some(0))
    })
    .await?;
    signal(fixture, replica, Signal::CONT)?;
    first.config_set("repl-timeout", "60").await?;
    let long = i64::try_from(node_timeout().as_secs())?;
    wait_until("the link is down for a while", async || {
        let info = second.info(&["replication"]).await?;
        Ok(info.number("master_link_down_since_seconds").is_some_and(|seconds| seconds > long))
    })
    .await?;
    // On a busy machine its agent is late.
    wait_until("its agent does not let it stand", async || {
        Ok(second.cluster_nodes().await?.iter().any(|node| node.flags.myself && node.flags.no_failover))
    })
    .await?;
    Ok(Pair { pod, primary, replica, password })
}

/// The replication works again.
pub async fn mend(fixture: &Fixture, pair: &Pair) -> Result<()> {
    Ok(operator(fixture, pair.replica).await?.config_set("masterauth", &pair.password).await?)
}

/// Whether the status says that the copy is not promoted, with the numbers and the way out.
#[must_use]
pub fn is_refused(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        let message = condition["message"].as_str().unwrap_or_default();
        condition["type"] == "Degraded"
            && condition["reason"] == "NeedsAPerson"
            && message.contains("replica 0-")
            && message.contains("is not promoted: its primary")
            && message.contains("mode Force and acceptDataLoss")
    })
}

/// Whether an event says so.
pub async fn is_told(fixture: &Fixture) -> Result<bool> {
    let told = |event: &Value| {
        event["reason"] == "NeedsAPerson"
            && event["message"].as_str().is_some_and(|text| text.contains("is not promoted"))
    };
    Ok(fixture.kubectl.list("events", "").await?.iter().any(told))
}

/// Waits until `check` says yes.
pub async fn wait_until(what: &str, mut check: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let begin = std::time::Instant::now();
    while !check().await? {
        ensure!(begin.elapsed() < hung::change(), "this hangs: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
