//! What docs/operations.md ("What persistence keeps") allows a blow to lose, and nothing else.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ::tests::writer::Lost;
use anyhow::{Result, ensure};
use resp::slot::key_slot;
use serde_json::{Value, json};

use super::blow::Member;

/// What the cluster keeps on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    Always,
    /// The same, but the files go with their pod.
    NoVolume,
    EverySec,
    /// No append-only file, and a snapshot now and then.
    Snapshots,
    Off,
}

impl Keeps {
    const ALL: [Self; 5] = [Self::Always, Self::NoVolume, Self::EverySec, Self::Snapshots, Self::Off];

    /// Whether `MODE` leaves this mode in. A word that is no mode would leave out all of them, and nobody would see that.
    pub(super) fn is_asked_for(self, mode: Option<&str>) -> Result<bool> {
        let words = Self::ALL.map(Self::word);
        ensure!(
            mode.is_none_or(|mode| words.contains(&mode)),
            "MODE is one of {words:?}, not {:?}",
            mode.unwrap_or_default()
        );
        Ok(mode.is_none_or(|mode| mode == self.word()))
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::NoVolume => "NoVolume",
            Self::EverySec => "EverySec",
            Self::Snapshots => "Snapshots",
            Self::Off => "Off",
        }
    }

    /// As the tally of `make soak` counts it.
    pub(super) fn told(self) -> &'static str {
        match self {
            Self::Always => "cluster: Always",
            Self::NoVolume => "cluster: NoVolume",
            Self::EverySec => "cluster: EverySec",
            Self::Snapshots => "cluster: Snapshots",
            Self::Off => "cluster: Off",
        }
    }

    /// As the specification says it.
    pub(super) fn spec(self) -> Value {
        match self {
            Self::Always | Self::EverySec | Self::Off => json!({"persistence": {"appendOnly": self.word()}}),
            Self::NoVolume => json!({"persistence": {"appendOnly": "Always"}, "storage": null}),
            Self::Snapshots => {
                json!({"persistence": {"appendOnly": "Off", "snapshots": [{"seconds": 2, "changes": 1}]}})
            }
        }
    }

    /// Whether a process that is killed comes back with all that it acknowledged.
    fn outlives_a_process(self) -> bool {
        match self {
            Self::Always | Self::NoVolume | Self::EverySec => true,
            Self::Snapshots | Self::Off => false,
        }
    }
}

/// One blow that a member of a shard felt.
#[derive(Clone, Debug)]
pub(super) struct Hit {
    pub(super) shard: u16,
    pub(super) member: Member,
    /// Before and after it was dealt: between the two a machine may stand still.
    pub(super) from: Instant,
    pub(super) at: Instant,
    /// Before and after what was held or away was let go.
    pub(super) ends: Instant,
    pub(super) until: Instant,
    /// What the shard's primary owned.
    pub(super) slots: BTreeSet<u16>,
    pub(super) how: How,
}

/// What a blow does to what a member has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The process is gone; its disk is not.
    Killed,
    /// The process does nothing for a while.
    Held,
    /// Process and disk are gone.
    Wiped,
    /// Redis does not feel it.
    Beside,
}

/// A replica takes over that lacks what its primary acknowledged this long before its end at most: 3 s, and half of `nodeTimeout` (2 s).
const BEHIND: Duration = Duration::from_secs(4);
/// So long Redis answers writes that are in its own memory only while a sync of its file is in progress (`flushAppendOnlyFile`).
const UNWRITTEN: Duration = Duration::from_secs(2);
/// A primary that wakes up answers what it was sent, before it hears that it was replaced.
const AWAKE: Duration = Duration::from_secs(2);

/// Whether what was stated may be lost by these blows includes this write.
pub(super) fn excused(keeps: Keeps, hits: &[Hit], lost: &Lost) -> bool {
    let slot = key_slot(&lost.key);
    let own: Vec<&Hit> = hits.iter().filter(|hit| hit.slots.contains(&slot)).collect();
    own.iter().any(|hit| replaced(hit, lost))
        || (keeps == Keeps::EverySec && own.iter().any(|hit| unwritten(hit, lost)))
        || (!keeps.outlives_a_process() && forgotten(hits, &own))
}

/// All of a shard were killed before the primary had handed the last of it to the kernel.
fn unwritten(hit: &Hit, lost: &Lost) -> bool {
    let is_last = lost.acked_at + UNWRITTEN * hung::excused() >= hit.from && lost.sent_at <= hit.at;
    hit.member == Member::All && hit.how == How::Killed && is_last
}

/// A primary was replaced by a replica that had not heard the last of it. It carried the write out between when that was sent and when the
/// answer was read, which on a machine that stands still is long after it was given.
fn replaced(hit: &Hit, lost: &Lost) -> bool {
    let stretch = hung::excused();
    let last = lost.acked_at + BEHIND * stretch >= hit.from && lost.sent_at <= hit.at;
    let awake = lost.acked_at >= hit.ends && lost.sent_at <= hit.until + AWAKE * stretch;
    match (hit.member, hit.how) {
        (Member::Replica, _) | (_, How::Beside) => false,
        // All of a shard at once: nobody was there to take over.
        (Member::All, How::Killed | How::Wiped) => false,
        (Member::Primary, How::Killed | How::Wiped) => last,
        (Member::Primary | Member::All, How::Held) => last || awake,
    }
}

/// Without a file, what no process has in memory is gone: both members of a shard, or (docs: not held yet) most primaries at once.
fn forgotten(hits: &[Hit], own: &[&Hit]) -> bool {
    let ended = |hit: &&&Hit| matches!(hit.how, How::Killed | How::Wiped);
    let own: Vec<&&Hit> = own.iter().filter(ended).collect();
    let primaries: BTreeSet<u16> =
        hits.iter().filter(|hit| ended(&hit) && hit.member != Member::Replica).map(|hit| hit.shard).collect();
    own.iter().any(|hit| hit.member == Member::All) || own.len() > 1 || (!own.is_empty() && primaries.len() > 1)
}

/// A lost write, and when it was acknowledged as seen from the first blow.
pub(super) fn told(lost: &Lost, begin: Instant) -> String {
    let after = lost.acked_at.saturating_duration_since(begin).as_secs_f64();
    let before = begin.saturating_duration_since(lost.acked_at).as_secs_f64();
    format!("{} (slot {}, acknowledged at {:+.2} s)", lost.what, key_slot(&lost.key), after - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(acked_at: Instant) -> Lost {
        Lost { key: "a".to_owned(), what: String::new(), sent_at: acked_at, acked_at }
    }

    fn hit(member: Member, how: How, at: Instant, slots: &[u16]) -> Hit {
        Hit { shard: 0, member, from: at, at, ends: at, until: at, slots: slots.iter().copied().collect(), how }
    }

    #[test]
    fn a_word_that_is_no_mode_is_an_error_and_leaves_out_nothing() {
        let asked = |mode| Keeps::ALL.map(|keeps| keeps.is_asked_for(mode).ok());
        assert_eq!(asked(None), [Some(true); 5]);
        assert_eq!(asked(Some("Off")), [Some(false), Some(false), Some(false), Some(false), Some(true)]);
        assert_eq!(asked(Some("off")), [None; 5]);
        assert_eq!(asked(Some("")), [None; 5]);
    }

    #[test]
    fn what_a_killed_primary_had_just_acknowledged_is_excused_and_nothing_else() {
        let slot = key_slot("a");
        let at = Instant::now() + Duration::from_secs(1000);
        let (just, long_ago) = (write(at - Duration::from_secs(1)), write(at - Duration::from_secs(900)));
        let killed = [hit(Member::Primary, How::Killed, at, &[slot])];
        assert!(excused(Keeps::Always, &killed, &just));
        assert!(!excused(Keeps::Always, &killed, &long_ago));
        assert!(!excused(Keeps::Off, &killed, &long_ago));
        for (member, how) in
            [(Member::Replica, How::Killed), (Member::All, How::Killed), (Member::Primary, How::Beside)]
        {
            assert!(!excused(Keeps::Always, &[hit(member, how, at, &[slot])], &just), "{member:?} {how:?}");
        }
        assert!(!excused(Keeps::Always, &[hit(Member::Primary, How::Killed, at, &[slot ^ 1])], &just));
    }

    #[test]
    fn where_files_are_synced_each_second_all_who_are_killed_may_lose_the_last_of_it() {
        let slot = key_slot("a");
        let at = Instant::now() + Duration::from_secs(1000);
        let (just, long_ago) = (write(at - Duration::from_secs(1)), write(at - Duration::from_secs(900)));
        let all = [hit(Member::All, How::Killed, at, &[slot])];
        assert!(excused(Keeps::EverySec, &all, &just));
        assert!(!excused(Keeps::EverySec, &all, &long_ago) && !excused(Keeps::Always, &all, &just));
        assert!(!excused(Keeps::EverySec, &[hit(Member::Replica, How::Killed, at, &[slot])], &just));
    }

    /// The machine stood still between the answer of the primary and its end, and before the answer was read.
    #[test]
    fn a_write_is_excused_by_when_it_was_sent_and_not_by_when_its_answer_was_read() {
        let slot = key_slot("a");
        let at = Instant::now() + Duration::from_secs(1000);
        let killed = [hit(Member::Primary, How::Killed, at, &[slot])];
        let read_late = Lost { sent_at: at - Duration::from_secs(1), ..write(at + Duration::from_secs(900)) };
        assert!(excused(Keeps::Always, &killed, &read_late));
        // Whoever was dead by then answered nothing.
        assert!(!excused(Keeps::Always, &killed, &write(at + Duration::from_millis(100))));
        let held = Hit { until: at + Duration::from_secs(5), ends: at + Duration::from_secs(5), ..killed[0].clone() };
        let held = [Hit { how: How::Held, ..held }];
        assert!(excused(Keeps::Always, &held, &write(at + Duration::from_secs(6))));
        assert!(!excused(Keeps::Always, &held, &write(at + Duration::from_secs(3))), "its heir took it");
        assert!(!excused(Keeps::Always, &held, &write(at + Duration::from_secs(900))));
    }

    #[test]
    fn without_a_file_a_shard_whose_processes_are_all_killed_is_excused_and_no_other() {
        let slot = key_slot("a");
        let at = Instant::now() + Duration::from_secs(1000);
        let long_ago = write(at - Duration::from_secs(900));
        let all = [hit(Member::All, How::Killed, at, &[slot])];
        assert!(excused(Keeps::Off, &all, &long_ago));
        assert!(!excused(Keeps::EverySec, &all, &long_ago));
        assert!(!excused(Keeps::Off, &[hit(Member::All, How::Killed, at, &[slot ^ 1])], &long_ago));
    }
}
