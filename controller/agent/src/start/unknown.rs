//! Replicas of which nobody knows yet what they have. Pure.

use resp::NodeId;

use super::{Facts, Peer, known_replicas, told_replicas};
use crate::identity::Identity;

/// Why nobody knows yet what a replica has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It says nothing.
    Silent,
    /// It answers, as Valkey does, and has not loaded yet what it has.
    Loads,
    /// It is being sent everything anew. Redis drops what it held before only when all has come, and keeps it where that breaks off, as it does when
    /// the sender has died.
    Receives,
}

impl Unknown {
    fn of(peer: Option<&Peer>) -> Option<Self> {
        match peer {
            None => Some(Self::Silent),
            Some(peer) if peer.loading => Some(Self::Loads),
            Some(peer) => peer.syncing.then_some(Self::Receives),
        }
    }

    /// As the end of a clause.
    pub(super) fn now(self) -> &'static str {
        match self {
            Self::Silent => "does not answer",
            Self::Loads => "is loading what it has",
            Self::Receives => "is being sent a copy and holds what it had before",
        }
    }

    /// The same of a wait that is over.
    pub(super) fn before(self) -> &'static str {
        match self {
            Self::Silent => "did not answer",
            Self::Loads => "was loading what it had",
            Self::Receives => "was being sent a copy and held what it had before",
        }
    }
}

/// A replica that somebody knows of, and of which nobody knows yet what it has.
pub(super) fn unknown_replica<'a>(me: &'a Identity, facts: &'a Facts) -> Option<(&'a NodeId, Unknown)> {
    let told = told_replicas(me, &facts.peers).map(|replica| &replica.id);
    let mut known = known_replicas(me, &facts.followers).into_iter().chain(told);
    known.find_map(|replica| Some((replica, Unknown::of(facts.peers.get(replica))?)))
}
