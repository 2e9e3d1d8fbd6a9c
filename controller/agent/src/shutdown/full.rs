//! Whether another attempt to save is worth it, and what is said where it is not. I/O around pure choices.

use std::{path::Path, time::Duration};

use tokio::time::{Instant, sleep};
use types::agent::AgentPhase;

use super::{AGAIN, ANEW};
use crate::{disk, handover, last_save, shared::Shared};

/// Where there is room again: Redis tries once a second to write to its append-only file what it could not.
const WRITES_AGAIN: Duration = Duration::from_secs(2);
/// How long Redis is left to its clients at least after it has refused to save: while it saves it answers nobody.
const REST: Duration = Duration::from_secs(5);
/// After which saving is tried again where room is not what was missing: more than once in the shortest grace period, as that may pass.
const OTHERWISE: Duration = Duration::from_secs(12);

/// Whether the volume has room for a snapshot.
#[derive(Default)]
pub(super) struct Full {
    /// Bytes free now.
    free: Option<u64>,
    /// Bytes it takes at most.
    needed: Option<u64>,
    /// When the attempt of now began.
    began: Option<Instant>,
    short: Option<Short>,
    said: Option<Instant>,
    is_tidied: bool,
}

/// The last refusal.
#[derive(Clone, Copy)]
struct Short {
    /// Bytes that were free then.
    free: Option<u64>,
    /// Room was missing then, for all that is known.
    is_for_room: bool,
    at: Instant,
    /// Redis is left alone for so long.
    rest: Duration,
}

impl Full {
    /// Before it is told to save; `false`: not now.
    pub(super) async fn prepare(&mut self, shared: &Shared) -> bool {
        let dir = &shared.options.data_dir;
        if !std::mem::replace(&mut self.is_tidied, true) && disk::remove_leftovers(dir) {
            sleep(WRITES_AGAIN).await;
            return false;
        }
        self.free = disk::room(dir);
        self.needed = handover::data_set(&shared.local).await.or(self.needed);
        if !self.is_worth_trying(Instant::now()) {
            self.say(shared);
            sleep(AGAIN).await;
            return false;
        }
        last_save::note(shared).await;
        self.began = Some(Instant::now());
        true
    }

    /// A snapshot is smaller than what it is made of, so only a refusal shows that it does not fit. After one there is to be more room before it
    /// is tried again, but for once a while: each attempt holds Redis up and takes what room is left. Clients have at least half of the time. Pure.
    fn is_worth_trying(&self, now: Instant) -> bool {
        let Some(short) = self.short else { return true };
        let rested = now.saturating_duration_since(short.at);
        let is_more = |free| short.free.is_none_or(|before| free > before) || (short.is_for_room && self.fits());
        let has_more = self.free.is_none_or(is_more);
        let pause = if short.is_for_room { ANEW } else { OTHERWISE };
        rested >= short.rest && (has_more || rested >= pause)
    }

    pub(super) fn refused(&mut self) {
        let at = Instant::now();
        let took = self.began.map(|began| at.saturating_duration_since(began)).unwrap_or_default();
        self.short = Some(Short { free: self.free, is_for_room: !self.fits(), at, rest: took.max(REST) });
    }

    /// Whether all that it takes is known to be there. Pure.
    fn fits(&self) -> bool {
        self.free.zip(self.needed).is_some_and(|(free, needed)| needed <= free)
    }

    /// Also of a server that an earlier agent has left: it is on its way down, whatever comes after it.
    pub(super) fn say(&mut self, shared: &Shared) {
        if self.said.is_some_and(|said| said.elapsed() < ANEW) {
            return;
        }
        self.said = Some(Instant::now());
        let words = self.words(&shared.options.data_dir);
        tracing::error!("{words}");
        shared.enter(AgentPhase::Stopping, Some(words));
    }

    /// What is missing, and what to do. Pure.
    fn words(&self, dir: &Path) -> String {
        let bytes = |number: Option<u64>| number.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
        let next = if self.fits() {
            "It is not for want of room: the log of redis-server says why".to_owned()
        } else {
            format!("Make spec.storage.size larger, or delete {}* there", disk::QUARANTINE)
        };
        format!(
            "what redis-server holds is nowhere else and could not be saved, so it is not ended: the volume at {} has {} bytes free, and a \
             snapshot takes up to {} bytes. {next}; what is not saved when the pod's grace period is over is lost",
            dir.display(),
            bytes(self.free),
            bytes(self.needed),
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    /// Before, Redis did nothing but save where it could not for another reason than room.
    #[test]
    fn a_refused_save_is_tried_again_after_a_rest_where_there_is_more_room() {
        let now = Instant::now();
        let ago = |span: Duration| now.checked_sub(span).unwrap();
        let is_worth = |free, needed, short: Option<(u64, Duration)>| {
            let short = short.map(|(room, ago_)| {
                let is_for_room = !Full { free: Some(room), needed, ..Full::default() }.fits();
                Short { free: Some(room), is_for_room, at: ago(ago_), rest: REST }
            });
            Full { free, needed, short, ..Full::default() }.is_worth_trying(now)
        };
        // It may compress well: nothing but a refusal shows that it does not fit.
        assert_eq!([is_worth(Some(1), Some(9), None), is_worth(None, None, None)], [true; 2]);
        let rested = Some((1, REST));
        assert_eq!([is_worth(Some(1), Some(9), rested), is_worth(Some(0), None, rested)], [false; 2]);
        assert_eq!([is_worth(Some(2), Some(9), rested), is_worth(None, Some(9), rested)], [true; 2]);
        assert!(!is_worth(Some(9), Some(9), Some((9, REST))), "it was refused for another reason than room");
        assert!(is_worth(Some(9), Some(9), Some((9, OTHERWISE))), "that may have passed");
        assert!(!is_worth(Some(1), Some(9), Some((1, OTHERWISE))), "there is no more room");
        assert!(!is_worth(Some(8), Some(8), Some((9, REST))), "nor does it fit any better by now");
        assert!(is_worth(Some(1), Some(9), Some((1, ANEW))), "it may be smaller by now");
        assert_eq!(
            [is_worth(Some(2), Some(9), Some((1, AGAIN))), is_worth(Some(9), Some(9), Some((9, AGAIN)))],
            [false; 2]
        );
        let slow = Short { free: Some(1), is_for_room: true, at: ago(ANEW), rest: 2 * ANEW };
        assert!(!Full { free: Some(2), short: Some(slow), ..Full::default() }.is_worth_trying(now), "it took long");
    }

    #[test]
    fn where_there_is_room_a_refused_save_is_not_put_on_the_volume() {
        let words = Full { free: Some(345), needed: Some(345), ..Full::default() }.words(Path::new("/data"));
        assert!(words.contains("It is not for want of room") && !words.contains("spec.storage.size"), "{words}");
    }

    #[test]
    fn what_is_missing_is_said_with_the_numbers_and_the_next_step() {
        let words = Full { free: Some(12), needed: Some(345), ..Full::default() }.words(Path::new("/data"));
        for part in ["/data has 12 bytes free", "takes up to 345 bytes", "spec.storage.size", "quarantine-*"] {
            assert!(words.contains(part), "{words}");
        }
    }
}
