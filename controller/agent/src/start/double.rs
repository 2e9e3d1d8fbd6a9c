//! A node that runs already, in another process: its pod was replaced and lives on, on a machine that had lost Kubernetes, or for as long as it
//! takes to end. Pure.
//!
//! Redis would not notice: both take writes for the same slots, and others believe whoever spoke last. So nothing is started, and nobody is
//! asked to take over from a node that serves. Where it runs is what agents of this cluster say. Silence says nothing: an address that may be
//! its own is asked some times before anything is decided, and one that was heard and falls silent is waited for a little longer. Neither is
//! waited for without a limit, and whoever else is there is nobody to wait for.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use resp::NodeId;
use tokio::time::Instant;

use super::{Peer, known_replicas, told_replicas};
use crate::identity::Identity;

/// How often an address is asked at which nobody has said that the node runs: each question may take a second, and the start waits for it.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Most addresses that are asked anew in one look: the bus asks nobody who he is, and a stranger may have told many.
const PLACES_MAX: usize = 16;
/// In so many looks all in all silence is not believed, a second each: one answer may come late, because a machine stood still or a packet was
/// lost (the kernel sends it again after just a second). The start waits for that wherever the network drops what goes to an address that is
/// nobody's any more, and that is most of them: about three seconds, in which peers are asked as well.
pub(super) const SILENT_FIRST: u32 = 3;
/// So many looks an agent that said that the node runs may be silent, a second or two each: its machine may be slow or out of reach for a
/// moment. They are counted because nobody is heard while this machine stands still.
pub(super) const SILENT_MOST: u32 = 10;
/// So many looks more, ten minutes or more, where its Redis' port is open meanwhile: an agent that stands still does not end its server. They are
/// counted because the address may be another's by then.
pub(super) const QUIET_MOST: u32 = 600;
/// In so many looks all in all, one or two seconds each, a replica is waited for that listens and has not said whom it follows: whether this node feeds
/// it nobody else knows. One that hangs would hold its primary for ever.
pub(super) const LATE_MOST: u32 = 10;
/// In so many looks, the one in which it was late among them: in the next one a packet may be lost, and its port looks closed.
pub(super) const LATE_AGAIN: u32 = 3;
/// The same of one that said that it was stopping: this is what the end of that looks like.
const STOPPED_AFTER: u32 = 2;
/// So many looks, a second each, an agent may be about to start the node: it decides within [`super::TAKEOVER_LIMIT`], or waits for something
/// that may never come.
const BEGINS_MOST: u32 = 30;

/// What a process has sent before it ended arrives within that time.
const ON_THE_WAY: Duration = Duration::from_secs(2);
/// A primary sends its replicas something at least every ten seconds (`repl-ping-replica-period`), and the replica counts whole ones. Whose link
/// has brought nothing for longer is fed by nobody: a machine that was switched off closes no connection.
const FED_MOST: Duration = Duration::from_secs(13);

/// What is heard from an address where the node may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It runs there.
    Runs,
    /// It runs there: its replica had something from it so long ago, after this agent had begun.
    Feeds(Duration),
    /// Its replica has a link to it, and had something from it a moment ago. That moment may be one before this agent began.
    MayFeed,
    /// It runs there, and its agent is about to end it.
    Stops,
    /// An agent is about to start it there.
    Begins,
    /// Somebody else is there, or its agent does not start it.
    Not,
    /// Who answers there is not believed.
    Strange,
    /// Nobody is there, by the network's word. An agent that crashed may be back in a moment.
    Gone,
    /// Nobody answers in time who could say, and Redis' port is open.
    Quiet,
    /// Nobody answers in time who could say.
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
    /// Looks in which silence kept anything from being decided. All in all: who makes up ever new addresses delays nothing for longer.
    silent: u32,
    /// In how many looks a replica was late, and in how many more one is waited for.
    late: u32,
    awaited: u32,
    /// When the process lived by what was heard in the last look.
    alive: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    asked: Instant,
    /// In how many looks nothing may be heard yet until it counts as gone; 0: it is not known to run there.
    patience: u32,
    /// In how many looks its agent has been silent beside an open port.
    quiet: u32,
    /// Its agent has said last that it was stopping.
    stops: bool,
    /// In how many looks its agent has been about to start it.
    begun: u32,
    /// Nothing was ever heard.
    is_silent: bool,
    /// Its replica has a link to it. That ends by itself: it feeds it again, or that was long ago, or the link is down.
    may_feed: bool,
    /// An agent there has said last how it is.
    has_said: bool,
}

impl Elsewhere {
    /// Whom to ask now: where it is said to be, and where it was found to run or may.
    #[must_use]
    pub fn due(&self, told: &BTreeSet<SocketAddr>, now: Instant) -> BTreeSet<SocketAddr> {
        let is_due = |known: &Known| now.duration_since(known.asked) >= ASK_EVERY;
        let told = told.iter().filter(|at| self.known.get(at).is_none_or(is_due)).take(PLACES_MAX);
        told.chain(self.running()).chain(self.open()).copied().collect()
    }

    /// What was heard in one look.
    pub fn note(&mut self, heard: Vec<(SocketAddr, Heard)>, now: Instant) {
        self.alive = heard.iter().filter_map(|(_, heard)| heard.alive(now)).max();
        for (at, heard) in heard {
            self.known.entry(at).or_insert_with(|| Known::fresh(now)).note(heard, now);
        }
        let is_silent = self.known.values().any(|known| known.is_silent && !known.may_feed);
        if self.runs_at().is_none() && is_silent {
            self.silent = self.silent.saturating_add(1);
        }
    }

    /// Whether one of its replicas listened in this look, and did not say whom it follows.
    pub fn note_replicas(&mut self, are_late: bool) {
        let counts = are_late && self.late < LATE_MOST;
        self.late = self.late.saturating_add(u32::from(counts));
        self.awaited = if counts { LATE_AGAIN } else { self.awaited.saturating_sub(1) };
    }

    /// Where it runs, if it does.
    #[must_use]
    pub fn runs_at(&self) -> Option<SocketAddr> {
        self.running().next().copied()
    }

    /// When that process lived by the last look; `None`: nothing was heard of it, and it may have ended since.
    #[must_use]
    pub fn alive(&self) -> Option<Instant> {
        self.alive
    }

    /// Where it may run for all that is known, and is to be asked for once more.
    #[must_use]
    pub fn unheard(&self) -> Option<SocketAddr> {
        self.open().chain(self.unsaid()).next().copied()
    }

    /// A replica has its link to it, or may have, and soon tells more.
    #[must_use]
    pub fn may_feed(&self) -> bool {
        self.known.values().any(|known| known.may_feed) || self.unsaid().next().is_some()
    }

    fn running(&self) -> impl Iterator<Item = &SocketAddr> {
        self.known.iter().filter(|(_, known)| known.patience > 0).map(|(at, _)| at)
    }

    fn open(&self) -> impl Iterator<Item = &SocketAddr> {
        let counts = self.silent < SILENT_FIRST;
        self.known.iter().filter(move |(_, known)| known.may_feed || counts && known.is_silent).map(|(at, _)| at)
    }

    /// Where no agent says how it is, as long as a replica is late that may be fed from there: that the network refuses what is new there is no
    /// word of what it lets go on.
    fn unsaid(&self) -> impl Iterator<Item = &SocketAddr> {
        self.known.iter().filter(|(_, known)| self.awaited > 0 && !known.has_said).map(|(at, _)| at)
    }

    /// Whether an agent there says how it is: by this look, or by the last one in which it was asked.
    fn is_told(&self, at: SocketAddr, heard: &[(SocketAddr, Heard)]) -> bool {
        let now = heard.iter().find(|(asked, _)| *asked == at).and_then(|(_, heard)| heard.is_a_word());
        now.unwrap_or_else(|| self.known.get(&at).is_some_and(|known| known.has_said))
    }
}

impl Heard {
    /// Since when the process is not known to have ended.
    fn alive(self, now: Instant) -> Option<Instant> {
        match self {
            Self::Runs | Self::Stops | Self::Begins => Some(now),
            Self::Feeds(ago) => now.checked_sub(ago),
            Self::MayFeed | Self::Not | Self::Strange | Self::Gone | Self::Quiet | Self::Nothing => None,
        }
    }

    /// Whether it is an agent's word; `None`: nobody there was asked.
    fn is_a_word(self) -> Option<bool> {
        match self {
            Self::Runs | Self::Stops | Self::Begins | Self::Not => Some(true),
            Self::Strange | Self::Gone | Self::Quiet | Self::Nothing => Some(false),
            Self::Feeds(_) | Self::MayFeed => None,
        }
    }
}

impl Known {
    fn fresh(now: Instant) -> Self {
        Self {
            asked: now,
            patience: 0,
            quiet: 0,
            stops: false,
            begun: 0,
            is_silent: true,
            may_feed: false,
            has_said: false,
        }
    }

    fn note(&mut self, heard: Heard, now: Instant) {
        self.asked = now;
        self.is_silent &= matches!(heard, Heard::Quiet | Heard::Nothing | Heard::MayFeed);
        self.may_feed = heard == Heard::MayFeed;
        self.has_said = heard.is_a_word().unwrap_or(self.has_said);
        self.begun = match heard {
            Heard::Begins => self.begun.saturating_add(1),
            Heard::Runs | Heard::Feeds(_) | Heard::Stops => 0,
            Heard::MayFeed | Heard::Not | Heard::Strange | Heard::Gone | Heard::Quiet | Heard::Nothing => self.begun,
        };
        self.stops = heard == Heard::Stops || self.stops && heard.is_a_word() != Some(true);
        self.quiet = match heard {
            Heard::Quiet => self.quiet.saturating_add(1),
            Heard::Runs | Heard::Feeds(_) | Heard::Stops | Heard::Begins | Heard::Not | Heard::Strange => 0,
            Heard::MayFeed | Heard::Gone | Heard::Nothing => self.quiet,
        };
        self.patience = match heard {
            Heard::Runs | Heard::Feeds(_) => SILENT_MOST,
            Heard::Begins if self.begun <= BEGINS_MOST => SILENT_MOST,
            Heard::Stops => STOPPED_AFTER,
            Heard::Not | Heard::Strange | Heard::Begins => 0,
            Heard::Gone => self.patience.min(STOPPED_AFTER).saturating_sub(1),
            Heard::Quiet if self.quiet <= QUIET_MOST && !self.stops => self.patience,
            Heard::MayFeed | Heard::Quiet | Heard::Nothing => self.patience.saturating_sub(1),
        };
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

/// Its replicas that may be there and have not said whom they follow (`unsaid`): by its record, by what was heard of them before, and by others.
#[must_use]
pub fn late(
    me: &Identity,
    peers: &BTreeMap<NodeId, Peer>,
    followers: &BTreeSet<NodeId>,
    unsaid: &BTreeMap<NodeId, SocketAddr>,
) -> BTreeSet<SocketAddr> {
    let replicas = told_replicas(me, peers).map(|node| &node.id).chain(known_replicas(me, followers));
    replicas.filter(|id| !peers.contains_key(*id)).filter_map(|id| unsaid.get(id)).copied().collect()
}

/// Where its replicas are fed by it: who could not be asked runs all the same, and so may he whose end the network tells (a policy refuses new
/// connections and lets those go on that there are). What an agent there has said counts more: it may be another member's by now, or about to stop.
#[must_use]
pub fn feeds(
    me: &Identity,
    peers: &BTreeMap<NodeId, Peer>,
    (elsewhere, heard): (&Elsewhere, &[(SocketAddr, Heard)]),
    (here, began): (SocketAddr, Duration),
) -> BTreeMap<SocketAddr, Heard> {
    let replicas = peers.values().filter(|peer| peer.replicates(&me.id));
    let fed = replicas.filter_map(|peer| peer.fed).filter(|(at, ago)| at.ip() != here.ip() && *ago <= FED_MOST);
    let mut found: BTreeMap<SocketAddr, Duration> = BTreeMap::new();
    for (at, ago) in fed.filter(|(at, _)| !elsewhere.is_told(*at, heard)) {
        let last = found.entry(at).or_insert(ago);
        *last = ago.min(*last);
    }
    let is_after = |ago: Duration| ago + ON_THE_WAY < began;
    found.into_iter().map(|(at, ago)| (at, if is_after(ago) { Heard::Feeds(ago) } else { Heard::MayFeed })).collect()
}

/// What is said of it.
pub(super) fn because(me: &Identity, Double { here, there }: Double) -> String {
    format!(
        "node {} runs already at {there}, as the agent there or its replica has said, and this pod is at {here}: started here as well, both would take writes \
         for the same slots. Where {there} is another member's pod, the volume here is a copy of that one's: delete its claim and this pod, and leave that \
         one alone. Else end the process at {there}, which is that of a pod that was deleted before its process had ended, or whose machine has lost \
         Kubernetes: this member starts by itself soon after that",
        me.id
    )
}

/// What is said while nobody knows whether it does.
pub(super) fn unheard(there: SocketAddr) -> String {
    format!(
        "this node may run on at {there}: nobody there has answered yet, or a replica still has its link to it, or has not said in time whether it \
         has. They are asked again before that counts as its end"
    )
}
