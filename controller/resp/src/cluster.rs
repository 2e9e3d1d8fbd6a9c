//! A cluster-aware client for one caller: follows MOVED and ASK, refreshes its slot map, and says of each command
//! whether it was acknowledged, refused or left in the dark.
//!
//! For tests, benchmarks and the demo's writer, whose books depend on that distinction. The controller and the agents
//! talk to named nodes and must not use this.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::{
    connection::{Connection, Credentials, Error, Options},
    frame::{Command, Reply},
    nodes,
    reply::{ErrorKind, ErrorReply},
    slot::key_slot,
};

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Redis acknowledged it with this reply.
    Acked(Reply),
    /// It was surely not executed; the last reason.
    Refused(String),
    /// It was sent and no answer came: it may or may not have been executed.
    Unknown(String),
}

/// What the client saw besides outcomes; for benchmarks that count redirections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// MOVED answers.
    pub moved: u64,
    /// ASK answers.
    pub asked: u64,
    /// TRYAGAIN answers.
    pub try_again: u64,
    /// Other transient refusals that were retried (CLUSTERDOWN, LOADING, READONLY …).
    pub retried: u64,
    /// Times a connection could not be made or broke.
    pub disconnected: u64,
}

/// Pause before a retry that waits for the cluster to change.
const PAUSE: Duration = Duration::from_millis(5);
/// Longer than any disk or machine was seen to stand still: a node that lives answers in this time, and a write that has no
/// answer then was cut off. A node that has ended refuses at once.
const ATTEMPT: Duration = Duration::from_secs(15);
/// Longer than a failover that nobody helps.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster-aware client. One command at a time; use several clients for concurrency.
#[derive(Debug)]
pub struct ClusterClient {
    seeds: Vec<SocketAddr>,
    credentials: Option<Credentials>,
    source: Option<IpAddr>,
    /// How long one attempt may take.
    attempt: Duration,
    /// How long a command is retried while it is surely not executed.
    patience: Duration,
    slots: Slots,
    connections: BTreeMap<SocketAddr, Connection>,
    counters: Counters,
    /// When the last attempt began.
    sent_at: Instant,
}

impl ClusterClient {
    /// A client that knows these nodes. Connects on first use.
    #[must_use]
    pub fn new(seeds: Vec<SocketAddr>, credentials: Option<Credentials>) -> Self {
        Self {
            seeds,
            credentials,
            source: None,
            attempt: ATTEMPT,
            patience: PATIENCE,
            slots: Slots::default(),
            connections: BTreeMap::new(),
            counters: Counters::default(),
            sent_at: Instant::now(),
        }
    }

    /// Bounds one attempt, and all retries of a command that is surely not executed.
    #[must_use]
    pub fn timeouts(mut self, attempt: Duration, patience: Duration) -> Self {
        (self.attempt, self.patience) = (attempt, patience);
        self
    }

    /// Binds connections to a source address.
    #[must_use]
    pub fn source(mut self, source: IpAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// What was seen so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When the last attempt of a command began: those before it were surely not executed. Its answer may be read long after it was
    /// given, whatever an attempt may take, on a machine that stands still.
    #[must_use]
    pub fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// `SET key value`.
    pub async fn set(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Outcome {
        let command = Command::new("SET").arg(&key).arg(value);
        self.execute(key, &command).await
    }

    /// `GET key`: its value, `None` if there is no such key, or why it could not be read. Reads are safe to repeat, so an
    /// unanswered one is tried again until patience ends.
    ///
    /// # Errors
    /// A sentence, when patience ended.
    pub async fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, String> {
        let command = Command::new("GET").arg(&key);
        let until = Instant::now() + self.patience;
        loop {
            match self.execute(&key, &command).await {
                Outcome::Acked(Reply::Bulk(value)) => return Ok(Some(value)),
                Outcome::Acked(Reply::Nil) => return Ok(None),
                Outcome::Acked(other) => return Err(format!("GET was answered with {other:?}")),
                Outcome::Refused(why) => return Err(why),
                Outcome::Unknown(why) if Instant::now() >= until => return Err(why),
                Outcome::Unknown(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Runs a command at the owner of `key`, following redirections, as long as it is surely not executed and patience
    /// lasts.
    pub async fn execute(&mut self, key: impl AsRef<[u8]>, command: &Command) -> Outcome {
        let slot = key_slot(key);
        let until = Instant::now() + self.patience;
        let mut asking: Option<SocketAddr> = None;
        loop {
            let target = match asking {
                Some(address) => address,
                None => self.owner(slot).await,
            };
            self.sent_at = Instant::now();
            let why = match self.attempt(target, asking.take().is_some(), command).await {
                Ok(reply) => return Outcome::Acked(reply),
                Err(Error::Refused { reply, .. }) => match self.redirect(target, &reply) {
                    Next::Follow => continue,
                    Next::Ask(address) => {
                        asking = Some(address);
                        continue;
                    }
                    Next::Retry => reply.text,
                    Next::GiveUp => return Outcome::Refused(reply.text),
                },
                Err(error) => {
                    self.counters.disconnected = self.counters.disconnected.saturating_add(1);
                    self.connections.remove(&target);
                    self.slots = Slots::default();
                    if !error.surely_not_executed() {
                        return Outcome::Unknown(error.to_string());
                    }
                    error.to_string()
                }
            };
            if Instant::now() >= until {
                return Outcome::Refused(why);
            }
            sleep(PAUSE).await;
        }
    }

    fn redirect(&mut self, from: SocketAddr, reply: &ErrorReply) -> Next {
        let counters = &mut self.counters;
        match reply.kind {
            ErrorKind::Moved { slot, to } => {
                counters.moved = counters.moved.saturating_add(1);
                match to {
                    Some(to) if to != from => {
                        self.slots.moved.insert(slot, to);
                        Next::Follow
                    }
                    Some(_) | None => {
                        self.slots = Slots::default();
                        Next::Retry
                    }
                }
            }
            ErrorKind::Ask { to, .. } => {
                counters.asked = counters.asked.saturating_add(1);
                to.map_or(Next::Retry, Next::Ask)
            }
            ErrorKind::TryAgain => {
                counters.try_again = counters.try_again.saturating_add(1);
                Next::Retry
            }
            ErrorKind::ClusterDown
            | ErrorKind::Loading
            | ErrorKind::MasterDown
            | ErrorKind::ReadOnly
            | ErrorKind::NoReplicas
            | ErrorKind::Busy => {
                counters.retried = counters.retried.saturating_add(1);
                self.slots = Slots::default();
                Next::Retry
            }
            ErrorKind::CrossSlot
            | ErrorKind::MisConf
            | ErrorKind::OutOfMemory
            | ErrorKind::NotAuthenticated
            | ErrorKind::NoPermission
            | ErrorKind::BusyKey
            | ErrorKind::IoErr
            | ErrorKind::Other => Next::GiveUp,
        }
    }

    async fn attempt(&mut self, target: SocketAddr, asking: bool, command: &Command) -> Result<Reply, Error> {
        let connection = self.connection(target).await?;
        if !asking {
            return connection.command(command).await;
        }
        let replies = connection.pipeline(&[Command::new("ASKING"), command.clone()]).await?;
        match replies.into_iter().nth(1) {
            Some(Reply::Error(text)) => Err(Error::Refused {
                command: command.name().to_owned(),
                address: target,
                reply: ErrorReply::parse(&text),
            }),
            Some(reply) => Ok(reply),
            None => Err(Error::Broken { command: command.name().to_owned(), address: target }),
        }
    }

    async fn connection(&mut self, target: SocketAddr) -> Result<&mut Connection, Error> {
        use std::collections::btree_map::Entry;
        match self.connections.entry(target) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let mut options = Options::new(target).deadline(self.attempt);
                options.connect_timeout = self.attempt;
                options.source = self.source;
                options.credentials = self.credentials.clone();
                Ok(entry.insert(Connection::open(&options).await?))
            }
        }
    }

    /// The owner of a slot by the map, which is fetched first if it does not say; any seed when nobody knows.
    async fn owner(&mut self, slot: u16) -> SocketAddr {
        if self.slots.owner(slot).is_none() {
            self.refresh().await;
        }
        let fallback = self.seeds.get(usize::from(slot) % self.seeds.len().max(1)).copied();
        self.slots.owner(slot).or(fallback).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 6379)))
    }

    /// Fetches the slot map from the first node that answers with a complete one.
    async fn refresh(&mut self) {
        let mut candidates: Vec<SocketAddr> = self.connections.keys().copied().collect();
        candidates.extend(self.seeds.iter().copied().filter(|seed| !self.connections.contains_key(seed)));
        for address in candidates {
            let table = match self.connection(address).await {
                Ok(connection) => connection.cluster_nodes().await,
                Err(error) => Err(error),
            };
            match table {
                Ok(table) if self.learn(&table) => return,
                Ok(_) => {}
                Err(_) => {
                    self.connections.remove(&address);
                }
            }
        }
    }

    fn learn(&mut self, table: &[nodes::Node]) -> bool {
        let owners = table.iter().filter(|node| !node.flags.failed).filter_map(|node| Some((node, node.address?)));
        let mut ranges: Vec<(u16, u16, SocketAddr)> = owners
            .flat_map(|(node, address)| node.slots.iter().map(move |range| (range.first, range.last, address)))
            .collect();
        ranges.sort_unstable();
        let known: Vec<SocketAddr> = table.iter().filter_map(|node| node.address).collect();
        if ranges.is_empty() {
            return false;
        }
        // Members seen once stay seeds, so that a cluster whose first nodes are gone is still found.
        let fresh: Vec<SocketAddr> = known.into_iter().filter(|address| !self.seeds.contains(address)).collect();
        self.seeds.extend(fresh);
        self.seeds.truncate(MAX_SEEDS);
        self.slots = Slots { ranges, moved: BTreeMap::new() };
        true
    }
}

/// Who owns which slot, by the last table, and by what was said since of single ones. A map of 16,384 entries for each table is what a client spends most
/// of its time with whose cluster is down.
#[derive(Debug, Default)]
struct Slots {
    /// First, last, owner; in order, and none overlaps another.
    ranges: Vec<(u16, u16, SocketAddr)>,
    moved: BTreeMap<u16, SocketAddr>,
}

impl Slots {
    fn owner(&self, slot: u16) -> Option<SocketAddr> {
        let before = || self.ranges.partition_point(|(first, ..)| *first <= slot);
        let by_table = || {
            let (_, last, owner) = self.ranges.get(before().checked_sub(1)?)?;
            (*last >= slot).then_some(*owner)
        };
        self.moved.get(&slot).copied().or_else(by_table)
    }
}

/// Most addresses remembered; clusters of tests and demos have a dozen nodes.
const MAX_SEEDS: usize = 1024;

enum Next {
    Follow,
    Ask(SocketAddr),
    Retry,
    GiveUp,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_slot_is_whose_the_table_says_or_what_was_said_since() {
        let (one, other): (SocketAddr, SocketAddr) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap());
        let slots = Slots {
            ranges: vec![(0, 9, one), (10, 10, other), (20, 30, one)],
            moved: BTreeMap::from([(5, other), (15, one)]),
        };
        let owners = [0, 9, 10, 11, 19, 20, 30, 31, 5, 15].map(|slot| slots.owner(slot));
        let (one, other) = (Some(one), Some(other));
        assert_eq!(owners, [one, one, other, None, None, one, one, None, other, one]);
        assert_eq!(Slots::default().owner(0), None);
    }
}
