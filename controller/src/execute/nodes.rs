//! Connections to the nodes of one batch: one per node, its identity checked when it was opened. A TCP connection
//! cannot change whom it reaches, so whatever is sent on it later reaches that very node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plan::{NodeId, SlotSet};
use resp::{Connection, nodes};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::Error;
use crate::redis::{self, Access};

/// How long one command of a step, or one pipeline of them, may take: it has just answered the look, and a step that breaks off at one of
/// many nodes, or in the middle of a count, is begun anew.
const DEADLINE: Duration = Duration::from_secs(5);

type Slot = Arc<Mutex<Option<Connection>>>;

/// Connections by identity and address.
pub(super) struct Nodes {
    access: Access,
    open: Mutex<BTreeMap<(NodeId, SocketAddr), Slot>>,
}

/// Exclusive use of a connection to a node whose identity was checked on it.
pub(super) struct Node {
    held: OwnedMutexGuard<Option<Connection>>,
}

impl Nodes {
    pub(super) fn new(access: Access) -> Self {
        Self { access, open: Mutex::new(BTreeMap::new()) }
    }

    /// A connection to exactly this node.
    pub(super) async fn at(&self, address: SocketAddr, id: NodeId) -> Result<Node, Error> {
        let slot = Arc::clone(self.open.lock().await.entry((id, address)).or_default());
        let mut held = slot.lock_owned().await;
        if held.as_ref().is_none_or(Connection::is_broken) {
            let mut connection = self.access.open_node(address, id).await?;
            connection.set_deadline(DEADLINE);
            *held = Some(connection);
        }
        Ok(Node { held })
    }
}

impl Node {
    /// The connection.
    pub(super) fn connection(&mut self) -> Result<&mut Connection, Error> {
        self.held.as_mut().ok_or_else(|| Error::Refused("the connection is not open".to_owned()))
    }

    /// Sends one command.
    pub(super) async fn send<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<resp::Reply, Error> {
        Ok(self.connection()?.call(words).await?)
    }

    /// The node's own table.
    pub(super) async fn table(&mut self) -> Result<Table, Error> {
        let lines = self.connection()?.cluster_nodes().await?;
        Ok(Table { lines })
    }
}

/// A node's own table.
pub(super) struct Table {
    lines: Vec<nodes::Node>,
}

impl Table {
    fn myself(&self) -> Option<&nodes::Node> {
        self.lines.iter().find(|node| node.flags.myself)
    }

    /// The line about a node.
    pub(super) fn of(&self, id: NodeId) -> Option<&nodes::Node> {
        self.lines.iter().find(|node| NodeId::parse(node.id.as_str()) == Some(id))
    }

    /// Everybody else.
    pub(super) fn others(&self) -> impl Iterator<Item = &nodes::Node> {
        self.lines.iter().filter(|node| !node.flags.myself)
    }

    /// Whom this node follows.
    pub(super) fn follows(&self) -> Option<NodeId> {
        self.myself()?.primary.as_ref().and_then(|id| NodeId::parse(id.as_str()))
    }

    /// Whether this node calls itself a primary.
    pub(super) fn is_primary(&self) -> bool {
        self.myself().is_some_and(|me| me.flags.primary)
    }

    /// The slots this node owns.
    pub(super) fn mine(&self) -> SlotSet {
        self.myself().map(slots_of).unwrap_or_default()
    }

    /// The slots that are half moved by this node's marks.
    pub(super) fn open(&self) -> Vec<u16> {
        let marks = self.myself().into_iter().flat_map(|me| me.migrating.iter().chain(&me.importing));
        marks.map(|(slot, _)| *slot).collect()
    }

    /// The slots that it sends away by its marks, and to whom.
    pub(super) fn migrating(&self) -> Vec<(u16, NodeId)> {
        let marks = self.myself().into_iter().flat_map(|me| &me.migrating);
        marks.filter_map(|(slot, to)| Some((*slot, NodeId::parse(to.as_str())?))).collect()
    }

    /// Slots that anybody owns, and whose they are not.
    pub(super) fn owned_by_others_than(&self, allowed: &[NodeId]) -> SlotSet {
        let foreign =
            self.others().filter(|node| NodeId::parse(node.id.as_str()).is_none_or(|id| !allowed.contains(&id)));
        foreign.fold(SlotSet::EMPTY, |all, node| all.union(&slots_of(node)))
    }

    /// Slots nobody owns.
    pub(super) fn unowned(&self) -> SlotSet {
        self.lines.iter().fold(SlotSet::EMPTY, |all, node| all.union(&slots_of(node))).complement()
    }
}

pub(super) fn slots_of(node: &nodes::Node) -> SlotSet {
    let mut slots = SlotSet::EMPTY;
    node.slots.iter().for_each(|range| slots.insert_range(range.first, range.last));
    slots
}

/// Counts the keys a node holds in each of these slots.
pub(super) async fn count_keys(node: &mut Node, slots: &SlotSet) -> Result<BTreeMap<u16, u64>, Error> {
    let numbers: Vec<u16> = slots.iter().collect();
    let count = |slot: &u16| resp::Command::new("CLUSTER").arg("COUNTKEYSINSLOT").arg(slot.to_string());
    let commands: Vec<_> = numbers.iter().map(count).collect();
    let replies = redis::all_in_turns(node.connection()?, &commands).await?;
    let counts = numbers.into_iter().zip(replies.iter().map(|reply| reply.integer().unwrap_or(i64::MAX)));
    Ok(counts.filter(|(_, count)| *count > 0).map(|(slot, n)| (slot, n.unsigned_abs())).collect())
}
