//! Asks the members that nodes.conf names what they see. I/O only; the answers are judged in [`crate::start`].
//!
//! An address proves nothing: pods come and go and addresses are given out again. A peer counts only when it accepts this
//! cluster's password and answers with the node ID that was expected, on the same connection that the rest is read from.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::{StreamExt, stream};
use resp::{Command, Connection, Credentials, Error, Info, Node, NodeId, Options};

use crate::start::Peer;

/// How long one peer may take to answer everything.
const PEER_TIMEOUT: Duration = Duration::from_millis(1000);
/// Peers asked at the same time.
const AT_ONCE: usize = 16;
/// Most peers that are asked: those of a large cluster know enough long before the last.
const PEERS_MAX: usize = 128;

/// How to reach peers.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Own address: members accept connections from anywhere, but on loopback the source matters to people who read logs.
    pub source: IpAddr,
    /// The agents' user.
    pub credentials: Credentials,
}

impl Asker {
    /// Asks everybody that the table names, and then those whose present address the answers reveal.
    pub async fn gather(&self, known: &[Node], me: &NodeId) -> BTreeMap<NodeId, Peer> {
        let mut tried = BTreeSet::new();
        let mut answered = self.ask_all(known, me, &mut tried).await;
        let told: Vec<Node> = answered.values().flat_map(|peer| peer.table.iter().cloned()).collect();
        answered.extend(self.ask_all(&told, me, &mut tried).await);
        answered
    }

    async fn ask_all(
        &self,
        nodes: &[Node],
        me: &NodeId,
        tried: &mut BTreeSet<(NodeId, SocketAddr)>,
    ) -> BTreeMap<NodeId, Peer> {
        let targets: Vec<(NodeId, SocketAddr)> = nodes
            .iter()
            .filter(|node| node.id != *me && !node.flags.handshake)
            .filter_map(|node| Some((node.id.clone(), node.address?)))
            .filter(|target| tried.len() < PEERS_MAX && tried.insert(target.clone()))
            .collect();
        stream::iter(targets)
            .map(|(id, address)| async move {
                match tokio::time::timeout(PEER_TIMEOUT, self.ask(&id, address)).await {
                    Ok(Ok(peer)) => peer.map(|peer| (id, peer)),
                    Ok(Err(error)) => {
                        tracing::debug!(%id, %address, %error, "a peer did not answer");
                        None
                    }
                    Err(_) => None,
                }
            })
            .buffer_unordered(AT_ONCE)
            .filter_map(|answer| async move { answer })
            .collect()
            .await
    }

    /// Opens a connection to a peer and makes sure that it is who it should be.
    ///
    /// # Errors
    /// When it does not answer; `Ok(None)` when somebody else does.
    pub async fn open(&self, id: &NodeId, address: SocketAddr) -> Result<Option<Connection>, Error> {
        let mut options = Options::new(address).credentials(self.credentials.clone()).deadline(PEER_TIMEOUT);
        options.connect_timeout = PEER_TIMEOUT;
        options.source = Some(self.source);
        let mut connection = Connection::open(&options).await?;
        let is_it = connection.my_id().await? == *id;
        Ok(is_it.then_some(connection))
    }

    async fn ask(&self, id: &NodeId, address: SocketAddr) -> Result<Option<Peer>, Error> {
        let Some(mut connection) = self.open(id, address).await? else { return Ok(None) };
        let table = connection.cluster_nodes().await?;
        let info = connection.info(&["replication", "persistence", "keyspace"]).await?;
        Ok(Some(peer(address, table, &info)))
    }

    /// Sends `CLUSTER FAILOVER FORCE` to a replica of a dead primary. OK means scheduled, not done.
    ///
    /// # Errors
    /// When it does not answer, refuses, or is somebody else.
    pub async fn force_failover(&self, id: &NodeId, address: SocketAddr) -> Result<(), Error> {
        match self.open(id, address).await? {
            Some(mut connection) => {
                connection.command(&Command::new("CLUSTER").arg("FAILOVER").arg("FORCE")).await.map(|_| ())
            }
            None => Err(Error::Broken { command: "CLUSTER FAILOVER".to_owned(), address }),
        }
    }
}

/// Reads what one peer said about itself.
fn peer(address: SocketAddr, table: Vec<Node>, info: &Info) -> Peer {
    let is_replica = info.get("role") == Some("slave");
    let offset = if is_replica { info.number("slave_repl_offset") } else { info.number("master_repl_offset") };
    let link_up = info.get("master_link_status") == Some("up");
    // -1: it was never up since the process started, and what is held came from the disk, however old.
    let down = info.number("master_link_down_since_seconds").and_then(|seconds| u64::try_from(seconds).ok());
    Peer {
        address,
        table,
        offset: offset.unwrap_or_default(),
        syncing: info.flag("master_sync_in_progress").unwrap_or_default(),
        loading: info.flag("loading").unwrap_or_default(),
        link_down_for: (is_replica && !link_up).then(|| down.map_or(Duration::MAX, Duration::from_secs)),
        keys: info.keys(),
    }
}
