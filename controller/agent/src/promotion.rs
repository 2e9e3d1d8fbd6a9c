//! Whether this replica's copy is worth promoting without anybody's order. Pure.
//!
//! Redis promotes the replica of a failed primary by itself. It bounds the age of the copy by the time since the link was lost, which
//! also counts the time since the primary died: a bound that keeps stale copies out keeps good ones out after a long outage. What counts
//! is how long the primary lived without the link; its last answer on the cluster bus tells when that was.
//!
//! A link is as old as what came over it last: where a network swallows what is sent, Redis shows the link as up until `repl-timeout` is
//! over. A primary that lives sends something every second (`repl-ping-replica-period`).
//!
//! And a link that is back brings first what was written while it was away, or while a full copy was made, which may be much: Redis shows
//! it as up from its first byte on. So the primary is asked how far it is, and the copy counts once it has come that far.

use std::time::Duration;

use resp::{Info, Node};

/// A copy counts as whole while its primary is known to have lived no longer than this without the link. Redis tells the age of a lost
/// link in whole seconds; the same bound as the planner's (`Limits::missed_millis`).
const MISSED: Duration = Duration::from_secs(3);

/// What the own Redis says in one look.
#[derive(Clone, Debug)]
pub struct Look {
    /// INFO with the sections `replication` and `server`.
    pub info: Info,
    /// Its line about the primary it follows.
    pub primary: Option<Node>,
    /// `cluster_state:ok`: it sees most primaries.
    pub state_ok: bool,
}

/// Follows whether the copy is whole.
#[derive(Debug, Default)]
pub struct Promotion {
    /// What Redis was last told; it starts forbidden.
    allowed: bool,
    /// The primary whose copy was held whole.
    synced_with: Option<String>,
    /// Its link was up at the last look.
    was_linked: bool,
    /// It lost most primaries while nothing came over its link, or stood still: how long its own primary lived meanwhile, it cannot know.
    was_alone: bool,
    /// Its primary was seen to live on without the link for longer than a whole copy allows. Later looks may say less again: a primary's last
    /// answer may be older than its end.
    was_left: bool,
    /// How far the copy has to come before it counts.
    catch_up: CatchUp,
    /// How long before the last look something came over the link, at most. `None`: it was not up yet.
    heard: Option<Duration>,
}

/// What a link that is back has to bring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CatchUp {
    /// The primary has not said yet how far it is.
    #[default]
    Unasked,
    /// Its replication offset then.
    To(i64),
    /// It was brought.
    Done,
}

impl Promotion {
    /// Whether promotion by election is to be forbidden from now on; `None`: no change. `since_last` is the time from the beginning of the
    /// last look that was answered to the end of this one. Explicit `CLUSTER FAILOVER` is not affected.
    pub fn decide(&mut self, look: &Look, since_last: Duration) -> Option<bool> {
        // Whoever stood still does not know what happened meanwhile.
        self.was_alone |= since_last > MISSED;
        let allowed = match look.info.get("role") {
            Some("slave") => self.is_whole(look),
            // A primary cannot be promoted; when it becomes a replica it has to sync first.
            _ => {
                self.synced_with = None;
                false
            }
        };
        (allowed != self.allowed).then_some(!allowed)
    }

    /// How long before the last look something came over the link from the present primary, at most. Redis cannot be asked later: when a
    /// link was lost it knows from when it noticed that, which is too late where it stood still or nobody closed the connection. Others know
    /// how long the primary lived on; with both, the controller may order what Redis is not let do by itself.
    #[must_use]
    pub const fn last_heard(&self) -> Option<Duration> {
        self.heard
    }

    /// Takes in a look that was begun so long after the one before: what it says was so after that, also where it is read much later.
    pub fn hear(&mut self, look: &Look, since_before: Duration) {
        self.heard = self.heard(look, since_before);
    }

    fn heard(&self, look: &Look, since_before: Duration) -> Option<Duration> {
        let is_replica = look.info.get("role") == Some("slave");
        match since_heard(&look.info).filter(|_| is_replica) {
            Some(heard) => Some(heard),
            None if is_replica && self.synced_with.as_deref() == look.info.get("master_host") => {
                self.heard.map(|heard| heard.saturating_add(since_before))
            }
            None => None,
        }
    }

    /// Whether the primary is to be asked for its replication offset, so that the copy may count.
    #[must_use]
    pub fn asks_offset(&self) -> bool {
        self.was_linked && self.catch_up == CatchUp::Unasked
    }

    /// The primary has said how far it is.
    pub const fn aim(&mut self, offset: i64) {
        self.catch_up = CatchUp::To(offset);
    }

    /// Redis was told.
    pub fn applied(&mut self, forbidden: bool) {
        self.allowed = !forbidden;
    }

    /// From the first whole copy of its present primary on, for as long as that primary did next to nothing without it.
    fn is_whole(&mut self, look: &Look) -> bool {
        let primary = look.info.get("master_host");
        let heard = since_heard(&look.info);
        let is_new = heard.is_some() && !self.was_linked || self.synced_with.as_deref() != primary;
        self.was_linked = heard.is_some();
        if heard.is_some() {
            self.synced_with = primary.map(str::to_owned);
        }
        if is_new || is_fed(&look.info) && (self.was_alone || self.was_left) {
            self.catch_up = CatchUp::Unasked;
        }
        if is_fed(&look.info) {
            (self.was_alone, self.was_left) = (false, false);
        } else {
            self.was_alone |= !look.state_ok;
            self.was_left |= missed(look) > MISSED;
        }
        let offset = look.info.number("slave_repl_offset");
        if matches!(self.catch_up, CatchUp::To(aim) if offset.is_some_and(|offset| offset >= aim)) {
            self.catch_up = CatchUp::Done;
        }
        let is_its_own = self.synced_with.is_some() && self.synced_with.as_deref() == primary;
        is_its_own && self.catch_up == CatchUp::Done && !self.was_alone && !self.was_left
    }
}

/// Whether this replica has what its primary had a moment ago: its copy is complete, and something comes over the link.
#[must_use]
pub fn is_fed(info: &Info) -> bool {
    since_heard(info).is_some_and(|heard| heard <= MISSED)
}

/// How long ago something came over the link, at most: Redis tells whole seconds, rounded down. `None`: the link is down, or the copy that it
/// brings is not complete.
fn since_heard(info: &Info) -> Option<Duration> {
    let is_whole = info.flag("master_sync_in_progress") == Some(false);
    let is_up = is_whole && info.get("master_link_status") == Some("up");
    let silent = seconds(info, "master_last_io_seconds_ago").filter(|_| is_up)?;
    Some(silent.saturating_add(Duration::from_secs(1)))
}

/// How long the primary is known to have lived without the link.
fn missed(look: &Look) -> Duration {
    // It was never up since the process started: whatever is held came from the disk.
    let lost = since_heard(&look.info).or_else(|| seconds(&look.info, "master_link_down_since_seconds"));
    let lost = lost.unwrap_or(Duration::MAX);
    let now = look.info.number("server_time_usec").map(|micros| micros / 1_000);
    let heard = look.primary.as_ref().map(|line| line.pong_received).filter(|pong| *pong > 0);
    let silent = now.zip(heard).and_then(|(now, heard)| u64::try_from(now.saturating_sub(heard)).ok());
    lost.saturating_sub(Duration::from_millis(silent.unwrap_or(0)))
}

/// A number of seconds; Redis shows -1 where there is none.
fn seconds(info: &Info, name: &str) -> Option<Duration> {
    info.number(name).and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    /// A replica whose link is up, or was lost so many seconds ago, and whose primary answered on the bus so long ago.
    fn replica(host: &str, lost: Option<i64>, syncing: u8, silent: i64) -> Look {
        match lost {
            Some(lost) => linked(host, &format!("down\nmaster_link_down_since_seconds:{lost}"), syncing, silent),
            None => quiet(host, 0, silent),
        }
    }

    /// A replica whose link looks up, and over which nothing has come for so many seconds.
    fn quiet(host: &str, unheard: i64, silent: i64) -> Look {
        linked(host, &format!("up\nmaster_last_io_seconds_ago:{unheard}"), 0, silent)
    }

    fn linked(host: &str, link: &str, syncing: u8, silent: i64) -> Look {
        let info = Info::parse(&format!(
            "server_time_usec:{}\nrole:slave\nmaster_host:{host}\nmaster_link_status:{link}\n\
             master_sync_in_progress:{syncing}\nslave_repl_offset:100\n",
            NOW * 1_000
        ));
        let pong = NOW - silent * 1_000;
        let line = format!("{:040x} {host}:6379@16379 master - 0 {pong} 1 connected 0-100", 1);
        Look { info, primary: resp::nodes::parse(&line).unwrap().pop(), state_ok: true }
    }

    fn up(host: &str) -> Look {
        replica(host, None, 0, 0)
    }

    /// What a look says, after which the primary is asked how far it is where that has to be known.
    fn decide(promotion: &mut Promotion, look: &Look, since_last: Duration) -> Option<bool> {
        promotion.hear(look, since_last);
        let told = promotion.decide(look, since_last);
        if !promotion.asks_offset() {
            return told;
        }
        promotion.aim(100);
        promotion.decide(look, Duration::from_millis(1))
    }

    /// What Redis is told over some looks.
    fn told(looks: impl IntoIterator<Item = Look>) -> Vec<Option<bool>> {
        let mut promotion = Promotion::default();
        let mut tell = |look: Look| {
            let told = decide(&mut promotion, &look, Duration::from_secs(1));
            told.into_iter().for_each(|forbidden| promotion.applied(forbidden));
            told
        };
        looks.into_iter().map(&mut tell).collect()
    }

    #[test]
    fn a_replica_may_be_promoted_from_its_first_whole_copy_of_its_present_primary() {
        let a = "10.0.0.1";
        let b = "10.0.0.2";
        let primary = Look { info: Info::parse("role:master\n"), primary: None, state_ok: true };
        let looks = [
            replica(a, Some(-1), 1, 0),
            up(a),
            replica(a, Some(0), 0, 0),
            replica(b, Some(1), 1, 0),
            up(b),
            primary,
            replica(a, Some(0), 0, 0),
        ];
        assert_eq!(told(looks), [None, Some(false), None, Some(true), Some(false), Some(true), None]);
    }

    #[test]
    fn a_dead_primary_did_nothing_however_long_ago_it_died() {
        let a = "10.0.0.1";
        let looks = [up(a), replica(a, Some(2), 0, 2), replica(a, Some(600), 0, 598)];
        assert_eq!(told(looks), [Some(false), None, None]);
    }

    #[test]
    fn a_primary_that_lives_on_without_the_link_leaves_the_copy_behind() {
        let a = "10.0.0.1";
        // It dies a minute later, and the copy stays as old as it is until the link is up again.
        let looks = [up(a), replica(a, Some(3), 0, 0), replica(a, Some(4), 0, 0), replica(a, Some(90), 0, 30), up(a)];
        assert_eq!(told(looks), [Some(false), None, Some(true), None, Some(false)]);
        let second_sync = [up(a), replica(a, Some(20), 1, 0), replica(a, Some(21), 0, 1)];
        assert_eq!(told(second_sync), [Some(false), Some(true), None]);
    }

    #[test]
    fn a_copy_that_was_left_behind_stays_so_whatever_a_later_look_says() {
        let a = "10.0.0.1";
        // The primary dies at once, half a second after its last answer; Redis tells the age of the link in whole seconds.
        let looks = [up(a), replica(a, Some(4), 0, 0), replica(a, Some(5), 0, 2), replica(a, Some(9), 0, 6), up(a)];
        assert_eq!(told(looks), [Some(false), Some(true), None, None, Some(false)]);
    }

    #[test]
    fn whoever_stood_still_syncs_before_it_may_be_promoted() {
        let mut promotion = Promotion::default();
        let second = Duration::from_secs(1);
        assert_eq!(decide(&mut promotion, &up("10.0.0.1"), second), Some(false));
        promotion.applied(false);
        assert_eq!(decide(&mut promotion, &replica("10.0.0.1", Some(0), 0, 0), second * 10), Some(true));
        promotion.applied(true);
        assert_eq!(decide(&mut promotion, &up("10.0.0.1"), second * 10), Some(false));
    }

    #[test]
    fn what_came_over_the_link_last_is_as_old_as_the_looks_say() {
        let (a, second) = ("10.0.0.1", Duration::from_secs(1));
        let mut promotion = Promotion::default();
        let mut heard = |look: &Look, seconds: u32| {
            promotion.hear(look, second * seconds);
            let _ = promotion.decide(look, second * seconds);
            promotion.last_heard().map(|heard| heard.as_secs())
        };
        let up = |unheard: i64| quiet(a, unheard, 0);
        assert_eq!(heard(&replica(a, Some(5), 0, 0), 1), None, "it was never up");
        assert_eq!(heard(&up(0), 1), Some(1));
        // The connection of a primary that is gone without a word looks up.
        assert_eq!(heard(&up(9), 9), Some(10));
        assert_eq!(heard(&replica(a, Some(0), 0, 0), 1), Some(11), "Redis has only now noticed it");
        assert_eq!(heard(&replica(a, Some(7), 0, 0), 7), Some(18));
        assert_eq!(heard(&replica("10.0.0.2", Some(8), 0, 0), 1), None, "another primary");
        assert_eq!(heard(&up(0), 1), Some(1));
        assert_eq!(heard(&Look { info: Info::parse("role:master\n"), ..up(0) }, 1), None);
    }

    #[test]
    fn whoever_was_alone_does_not_know_how_long_its_primary_lived() {
        let a = "10.0.0.1";
        let alone = |lost, silent| Look { state_ok: false, ..replica(a, Some(lost), 0, silent) };
        // Cut off from everybody, it has heard of its primary as long ago as it lost the link.
        let looks = [up(a), replica(a, Some(1), 0, 1), alone(10, 10), replica(a, Some(60), 0, 60), up(a)];
        assert_eq!(told(looks), [Some(false), None, Some(true), None, Some(false)]);
    }
    #[test]
    fn a_link_that_looks_up_and_brings_nothing_leaves_the_copy_behind() {
        let a = "10.0.0.1";
        let looks = [up(a), quiet(a, 2, 0), quiet(a, 3, 0), quiet(a, 30, 20), replica(a, Some(0), 0, 50), up(a)];
        assert_eq!(told(looks), [Some(false), None, Some(true), None, None, Some(false)]);
        // A primary that is gone without a word was silent on the bus as long.
        let looks = [up(a), quiet(a, 10, 9), quiet(a, 59, 58), replica(a, Some(0), 0, 60), up(a)];
        assert_eq!(told(looks), [Some(false), None, None, None, None]);
        // One that has stood still, or was cut off from everybody, and whose connection nobody closed.
        let looks = [up(a), Look { state_ok: false, ..quiet(a, 10, 10) }, quiet(a, 11, 11), up(a)];
        assert_eq!(told(looks), [Some(false), Some(true), None, Some(false)]);
        let mut promotion = Promotion::default();
        let second = Duration::from_secs(1);
        assert_eq!(decide(&mut promotion, &up(a), second), Some(false));
        promotion.applied(false);
        assert_eq!(decide(&mut promotion, &quiet(a, 20, 20), second * 20), Some(true));
    }
    #[test]
    fn a_link_that_is_back_brings_what_was_missed_before_the_copy_counts() {
        let a = "10.0.0.1";
        let second = Duration::from_secs(1);
        let mut promotion = Promotion::default();
        let mut told = |look: &Look, aim: Option<i64>| {
            promotion.hear(look, second);
            let told = promotion.decide(look, second);
            told.into_iter().for_each(|forbidden| promotion.applied(forbidden));
            let asks = promotion.asks_offset();
            aim.filter(|_| asks).into_iter().for_each(|aim| promotion.aim(aim));
            (told, asks)
        };
        assert_eq!(told(&replica(a, Some(-1), 1, 0), None), (None, false), "a full copy is being made");
        assert_eq!(told(&up(a), None), (None, true), "its primary does not answer");
        assert_eq!(told(&up(a), Some(101)), (None, true));
        assert_eq!(told(&up(a), None), (None, false), "a byte is missing");
        let more = |look: Look| {
            let others = look.info.iter().filter(|(name, _)| *name != "slave_repl_offset");
            let text: String = others.map(|(name, value)| format!("{name}:{value}\n")).collect();
            Look { info: Info::parse(&format!("{text}slave_repl_offset:101\n")), ..look }
        };
        assert_eq!(told(&more(up(a)), None), (Some(false), false));
        assert_eq!(told(&more(replica(a, Some(0), 0, 0)), None), (None, false), "it lacks a moment");
        assert_eq!(told(&up(a), Some(100)), (Some(true), true), "it is back");
        assert_eq!(told(&up(a), None), (Some(false), false));
    }
}
