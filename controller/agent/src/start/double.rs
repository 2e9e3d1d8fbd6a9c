//! A node that runs already, in another process: its pod was replaced and lives on, on a machine that had lost Kubernetes, or for as long as it
//! takes to end. Pure.
//!
//! Redis would not notice: both take writes for the same slots, and others believe whoever spoke last. So nothing is started, and nobody is
//! asked to take over from a node that serves. Where it runs is what agents of this cluster say. Where none was ever heard, nothing is known
//! and nothing is waited for; one that was heard and falls silent is waited for a little longer.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use resp::NodeId;
use tokio::time::Instant;

use super::Peer;
use crate::identity::Identity;

/// How often an address is asked at which nobody has said that the node runs: each question may take a second, and the start waits for it.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// So many looks an agent that said that the node runs may be silent, a second or two each: its machine may be slow or out of reach for a
/// moment. They are counted because nobody is heard while this machine stands still.
const SILENT_MOST: u32 = 10;
/// The same of one that said that it was stopping: this is what the end of that looks like.
const STOPPED_AFTER: u32 = 2;

/// What is heard from an address where the node may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It runs there.
    Runs,
    /// It runs there, and its agent is about to end it.
    Stops,
    /// Somebody else is there, or its agent does not start it.
    Not,
    /// Nobody answers who could say.
    Nothing,
}

/// A node that is to be started, and runs elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Double {
    /// Where it is to be started.
    pub here: SocketAddr,
    /// Where it runs.
    pub there: SocketAddr,
}

/// What this process knows of the addresses where the node is said to be: it outlasts the looks in which an agent there is silent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    known: BTreeMap<SocketAddr, Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    asked: Instant,
    /// In how many looks nothing may be heard yet until it counts as gone; 0: it is not known to run there.
    patience: u32,
}

impl Elsewhere {
    /// Whom to ask now: where it is said to be, and where it was found to run.
    #[must_use]
    pub fn due(&self, told: &BTreeSet<SocketAddr>, now: Instant) -> BTreeSet<SocketAddr> {
        let is_due = |known: &Known| known.patience > 0 || now.duration_since(known.asked) >= ASK_EVERY;
        let told = told.iter().filter(|at| self.known.get(at).is_none_or(is_due));
        told.chain(self.running()).copied().collect()
    }

    /// What was heard from there.
    pub fn note(&mut self, at: SocketAddr, heard: Heard, now: Instant) {
        let known = self.known.entry(at).or_insert(Known { asked: now, patience: 0 });
        known.asked = now;
        known.patience = match heard {
            Heard::Runs => SILENT_MOST,
            Heard::Stops => STOPPED_AFTER,
            Heard::Not => 0,
            Heard::Nothing => known.patience.saturating_sub(1),
        };
    }

    /// Where it runs, if it does.
    #[must_use]
    pub fn runs_at(&self) -> Option<SocketAddr> {
        self.running().next().copied()
    }

    fn running(&self) -> impl Iterator<Item = &SocketAddr> {
        self.known.iter().filter(|(_, known)| known.patience > 0).map(|(at, _)| at)
    }
}

/// Where its own record has the node, if that is another address than this one's.
#[must_use]
pub fn recorded(me: &Identity, here: SocketAddr) -> BTreeSet<SocketAddr> {
    me.address.into_iter().filter(|at| at.ip() != here.ip()).collect()
}

/// Where others have it.
#[must_use]
pub fn told(me: &Identity, peers: &BTreeMap<NodeId, Peer>, here: SocketAddr) -> BTreeSet<SocketAddr> {
    let lines = peers.values().flat_map(|peer| &peer.table).filter(|node| node.id == me.id && !node.flags.handshake);
    lines.filter_map(|node| node.address).filter(|at| at.ip() != here.ip()).collect()
}

/// What is said of it.
pub(super) fn because(me: &Identity, Double { here, there }: Double) -> String {
    format!(
        "node {} runs already at {there}, as the agent there has said, and this pod is at {here}: started here as well, both would take writes \
         for the same slots. End the process at {there}, which is that of a pod that was deleted before its process had ended, or whose machine has lost \
         Kubernetes: this member starts by itself soon after that. If the volume here is a copy of another member's, delete its claim and this pod",
        me.id
    )
}
