//! Whether this replica's copy is worth promoting without anybody's order. Pure.
//!
//! Redis promotes the replica of a failed primary by itself. It bounds the age of the copy by the time since the link was lost, and shows
//! a link as up from its first byte on until `repl-timeout` is over, whatever it brings and however late. What counts is how long the
//! primary lived beyond what the copy has. So the primary is asked once a second how far it is (`follow`): when the copy has come that far,
//! it has everything up to the moment of the question. The primary's last answer on the cluster bus tells when it still lived.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use resp::{Info, Node, NodeId};
use types::agent::NotElectable;

/// A copy counts as whole while its primary is known to have lived no longer than this beyond it; the same bound as the planner's
/// (`Limits::missed_millis`). Questions and looks, once a second each, take up to two of the three seconds.
pub const MISSED: Duration = Duration::from_secs(3);
/// Between the end of a primary and the word of most that it has failed lie its timeout, half of it until the last of them had asked, and
/// the time that gossip takes.
const GOSSIP: Duration = Duration::from_secs(7);
/// Words of the primary that the copy has not come to yet. A copy that is behind by more seconds is not whole anyway.
const WORDS_MOST: usize = 16;

/// What the own Redis says in one look.
#[derive(Clone, Debug)]
pub struct Look {
    /// When the look began: what it says was so after that.
    pub at: Instant,
    /// When it was over.
    pub done: Instant,
    /// INFO with the sections `replication` and `server`.
    pub info: Info,
    /// Its line about the primary it follows.
    pub primary: Option<Node>,
    /// `cluster_state:ok`: it sees most primaries.
    pub state_ok: bool,
}

/// How far a primary was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The primary.
    pub of: NodeId,
    /// Its replication ID.
    pub stream: String,
    /// Its replication offset.
    pub offset: u64,
    /// When it was asked: whatever it had acknowledged until then lies before the offset.
    pub asked: Instant,
}

/// What a replica has of its primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The primary.
    pub of: NodeId,
    /// When it was last known to have everything; `None`: it never was since the agent started, or since it began another copy.
    pub current: Option<Instant>,
    /// Why it is not to stand for election; `None`: it may.
    pub held_back: Option<NotElectable>,
}

/// What Redis was last told of standing for election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    /// Not to; it starts so.
    #[default]
    Forbidden,
    /// It may.
    Allowed,
    /// It did not answer: either may be so.
    Unanswered,
}

/// Follows whether the copy is whole.
#[derive(Debug, Default)]
pub struct Promotion {
    told: Told,
    /// When the last look that was answered began.
    looked: Option<Instant>,
    standing: Option<Standing>,
    /// The replication offset at the last look.
    offset: u64,
    /// What the primary has told and the copy has not come to yet, as it was told.
    words: VecDeque<Word>,
    is_current: bool,
    /// It lost most primaries while it was behind, or stood still: how long its own primary lived meanwhile, it cannot know.
    was_alone: bool,
    /// Its primary lived on beyond the copy for longer than a whole one allows. Later looks may say less again: a primary's last answer may
    /// be older than its end.
    was_left: bool,
}

impl Promotion {
    /// Takes in what the primary told.
    pub fn hear(&mut self, word: Word) {
        if self.words.len() >= WORDS_MOST {
            self.words.pop_front();
        }
        self.words.push_back(word);
    }

    /// Whether promotion by election is to be forbidden from now on; `None`: no change. Explicit `CLUSTER FAILOVER` is not affected.
    pub fn decide(&mut self, look: &Look, node_timeout: Duration) -> Option<bool> {
        // Whoever stood still does not know what happened meanwhile, be it in the middle of a look.
        let before = self.looked.replace(look.at);
        let stood_still = before.is_some_and(|before| look.done.saturating_duration_since(before) > MISSED);
        self.was_alone |= stood_still;
        // A primary cannot be promoted; when it becomes a replica it has to come up with another one first.
        let follows = look.primary.as_ref().filter(|_| look.info.get("role") == Some("slave"));
        let Some(primary) = follows else {
            (self.standing, self.offset, self.is_current) = (None, 0, false);
            return (self.told != Told::Forbidden).then_some(true);
        };
        self.judge(look, primary, node_timeout, stood_still);
        let held_back = self.reason(look, primary);
        if let Some(standing) = &mut self.standing {
            standing.held_back = held_back;
        }
        let wanted = if held_back.is_none() { Told::Allowed } else { Told::Forbidden };
        (wanted != self.told).then_some(held_back.is_some())
    }

    /// What the copy has; `None`: this member is no replica.
    #[must_use]
    pub const fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    /// Whether the copy had everything a moment before the last look.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        self.is_current
    }

    /// Whether Redis was told that it may stand.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.told == Told::Allowed
    }

    /// Redis was told.
    pub fn applied(&mut self, forbidden: bool) {
        self.told = if forbidden { Told::Forbidden } else { Told::Allowed };
    }

    /// Redis was told and has not answered: it is told again once it does.
    pub fn unanswered(&mut self) {
        self.told = Told::Unanswered;
    }

    fn judge(&mut self, look: &Look, primary: &Node, node_timeout: Duration, stood_still: bool) {
        self.come_up(look, primary);
        self.is_current = !stood_still && self.age(look).is_some_and(|age| age <= MISSED);
        if self.is_current {
            (self.was_alone, self.was_left) = (false, false);
        } else {
            self.was_alone |= !look.state_ok;
            self.was_left |= self.missed(look, primary) > MISSED;
            // Others hear of a primary that they do not hold to be dead, whatever this member hears.
            let latest = node_timeout.saturating_mul(3) / 2 + GOSSIP;
            self.was_left |= !primary.flags.failed && self.age(look).is_none_or(|age| age > latest);
        }
    }

    /// Why this copy may not take over by itself.
    fn reason(&self, look: &Look, primary: &Node) -> Option<NotElectable> {
        let counts_as_failed = primary.flags.failed || primary.flags.suspected;
        if self.age(look).is_none() {
            Some(NotElectable::NeverWhole)
        } else if self.was_left {
            Some(NotElectable::LeftBehind)
        } else if self.was_alone {
            Some(NotElectable::WasAlone)
        } else if primary.flags.no_address {
            Some(NotElectable::AddressTaken)
        } else if counts_as_failed && self.told != Told::Allowed {
            // What the copy was seen to have may be older than the primary's last writes, and an election is a moment away.
            Some(NotElectable::TooLate)
        } else {
            None
        }
    }

    /// Which of the primary's words the copy has come to.
    fn come_up(&mut self, look: &Look, primary: &Node) {
        let offset = look.info.number("slave_repl_offset").and_then(|offset| u64::try_from(offset).ok()).unwrap_or(0);
        // A copy that is made anew takes the place of what was there; one that was given up begins anew.
        let is_another = look.info.flag("master_sync_in_progress") != Some(false) || offset < self.offset;
        self.offset = offset;
        if is_another || self.standing.as_ref().is_none_or(|standing| standing.of != primary.id) {
            self.standing = Some(Standing { of: primary.id.clone(), current: None, held_back: None });
        }
        let Some(standing) = self.standing.as_mut().filter(|_| !is_another) else { return };
        // Offsets of another history cannot be compared: a primary that started anew counts from the beginning.
        let stream = look.info.get("master_replid");
        let is_reached =
            |word: &Word| word.of == primary.id && Some(word.stream.as_str()) == stream && word.offset <= offset;
        let reached = self.words.iter().filter(|word| is_reached(word)).map(|word| word.asked).max();
        standing.current = standing.current.max(reached);
        self.words.retain(|word| !is_reached(word));
    }

    /// How long before this look the copy had everything.
    fn age(&self, look: &Look) -> Option<Duration> {
        let current = self.standing.as_ref().and_then(|standing| standing.current)?;
        Some(look.at.saturating_duration_since(current))
    }

    /// How long the primary is known to have lived beyond the copy.
    fn missed(&self, look: &Look, primary: &Node) -> Duration {
        let age = self.age(look).unwrap_or(Duration::MAX);
        let now = look.info.number("server_time_usec").map(|micros| micros / 1_000);
        let heard = Some(primary.pong_received).filter(|pong| *pong > 0);
        let silent = now.zip(heard).and_then(|(now, heard)| u64::try_from(now.saturating_sub(heard)).ok());
        age.saturating_sub(Duration::from_millis(silent.unwrap_or(0)))
    }
}

#[cfg(test)]
#[path = "promotion/tests.rs"]
mod tests;
