//! Has redis-server end, without the loss of what is nowhere else. I/O around pure choices.
//!
//! Redis refuses to end while it cannot save, and while its append-only file is first written: what is on disk is older than what is in memory
//! then, and a kill would lose it. On a full disk that lasts until somebody makes room; what is not saved by the end of the grace period ends with the pod.

use std::{
    future::pending,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use resp::ErrorKind;
use rustix::process::Signal;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use types::agent::{AgentConfig, AgentPhase};

use crate::{
    disk,
    handover::{self, Log, Outcome, Silence},
    last_save,
    process::{Exit, Record},
    shared::Shared,
};

/// How long redis-server may show no work before it counts as hung.
const STALL: Duration = Duration::from_secs(20);
/// After a refused SHUTDOWN, or a hand-over that Redis did not answer.
pub(crate) const AGAIN: Duration = Duration::from_millis(500);
/// How long redis-server has after SIGTERM before SIGKILL, when SHUTDOWN did not work.
pub(crate) const AFTER_TERM: Duration = Duration::from_secs(5);
/// Where there is room again: Redis tries once a second to write to its append-only file what it could not.
const WRITES_AGAIN: Duration = Duration::from_secs(2);
/// How long an attempt to save may take that nothing of ours ends: more than any grace period.
const SAVES: Duration = Duration::from_secs(24 * 3600);
/// How often what is missing is said again, and saving is tried again without more room: Redis may have refused for another reason.
const ANEW: Duration = Duration::from_secs(60);

/// How redis-server is to be shut down.
pub(crate) struct LastWords {
    /// How the hand-over went.
    pub(crate) outcome: Outcome,
    /// Keys it holds, if it says so.
    pub(crate) keys: Option<i64>,
    /// Until when it may take.
    pub(crate) until: Instant,
    /// Until when it is told to again after it has refused.
    pub(crate) tries: Instant,
}

impl LastWords {
    /// Another member has the role and all that this one has.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match self.outcome {
            Outcome::NotNeeded | Outcome::Done { .. } => true,
            Outcome::Failed { .. } => false,
        }
    }

    fn may_be_last(&self) -> bool {
        handover::may_be_last(&self.outcome, self.keys)
    }

    fn mode(&self, config: &AgentConfig, log: Option<Log>) -> &'static str {
        handover::shutdown_mode(config, &self.outcome, self.keys, log)
    }
}

/// How a process went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// After it was told to save.
    Saved,
    /// Without.
    Unsaved,
}

/// Sees to it that the process is gone.
pub(crate) async fn end(shared: &Arc<Shared>, process: &Record, last: &LastWords) -> Ended {
    if let Some(ended) = shut_down(shared, process, last).await {
        return ended;
    }
    process.signal(Signal::TERM);
    if !process.gone_within(AFTER_TERM).await {
        tracing::error!("redis-server did not stop in time and is killed");
        process.signal(Signal::KILL);
        process.gone_within(AFTER_TERM).await;
    }
    sleep(Duration::ZERO).await;
    Ended::Unsaved
}

/// Whether it ended with code 0, as after all that it was told to do.
pub(crate) async fn ended_well(exit: Option<watch::Receiver<Option<Exit>>>) -> bool {
    let Some(mut exit) = exit else { return false };
    let told = tokio::time::timeout(AFTER_TERM, exit.wait_for(Option::is_some)).await;
    matches!(told, Ok(Ok(how)) if *how == Some(Exit::Code(0)))
}

/// What is known of the attempts so far.
#[derive(Default)]
struct Attempts {
    /// The last one was to save.
    saves: AtomicBool,
    /// It was refused, and what is in memory is nowhere else: it is not killed.
    is_kept: AtomicBool,
}

/// Sends SHUTDOWN until the process is gone; `None`: it hangs, or time is up.
async fn shut_down(shared: &Arc<Shared>, process: &Record, last: &LastWords) -> Option<Ended> {
    let attempts = Attempts::default();
    let gone = async {
        let mut until = last.until;
        while !process.gone_or_stuck(until, STALL).await {
            let is_stuck = Instant::now() < until;
            // What is nowhere else is saved for as long as the pod lasts; what hangs saves nothing.
            let is_saved = !is_stuck && last.may_be_last() && attempts.saves.load(Ordering::Relaxed);
            if !is_saved && !attempts.is_kept.load(Ordering::Relaxed) {
                return false;
            }
            until = Instant::now() + SAVES;
            sleep(AGAIN).await;
        }
        true
    };
    tokio::select! {
        is_gone = gone => is_gone.then(|| if attempts.saves.load(Ordering::Relaxed) { Ended::Saved } else { Ended::Unsaved }),
        () = tell(shared, process, last, &attempts) => None,
    }
}

/// Returns when it is not worth telling any more.
async fn tell(shared: &Arc<Shared>, process: &Record, last: &LastWords, attempts: &Attempts) {
    let (mut full, mut told, mut tidied) = (Full::default(), false, false);
    while process.is_alive() {
        let silence = handover::silence(&shared.local).await;
        let mode = now(last.mode(&shared.inputs().config, log(shared).await), silence);
        if mode == "SAVE" {
            if !std::mem::replace(&mut tidied, true) && disk::remove_leftovers(&shared.options.data_dir) {
                sleep(WRITES_AGAIN).await;
                continue;
            }
            if silence == Silence::Script {
                handover::end_script(&shared.local).await;
            }
            full.look(shared).await;
            if !full.is_worth_trying(Instant::now()) {
                full.say(shared);
                sleep(AGAIN).await;
                continue;
            }
            last_save::note(shared).await;
        }
        attempts.saves.store(mode == "SAVE", Ordering::Relaxed);
        // No reply is what success looks like, and it may take as long as saving takes.
        let is_kept = attempts.is_kept.load(Ordering::Relaxed);
        let left = if is_kept { SAVES } else { last.until.saturating_duration_since(Instant::now()) };
        if let Err(error) = handover::shut_down(&shared.local, mode, left).await {
            if !told {
                tracing::warn!(mode, %error, "SHUTDOWN is not followed yet; it is tried again");
                told = true;
            }
            let is_refused = error.refusal().is_some_and(|refusal| is_for_good(&refusal.kind));
            if mode == "SAVE" && is_refused && last.may_be_last() {
                attempts.is_kept.store(true, Ordering::Relaxed);
                full.refused();
                full.say(shared);
            }
            let is_kept = attempts.is_kept.load(Ordering::Relaxed);
            if Instant::now() >= last.tries && !is_kept && !handover::writes_its_log(&shared.local).await {
                return;
            }
        }
        sleep(AGAIN).await;
    }
    pending().await
}

/// What it says of its append-only file, or said last.
async fn log(shared: &Shared) -> Option<Log> {
    let info = handover::info(&shared.local, &["persistence"]).await;
    info.ok().and_then(|info| shared.note_log(&info)).or_else(|| shared.last_log())
}

/// It is neither busy nor loading, which pass by themselves. Pure.
fn is_for_good(kind: &ErrorKind) -> bool {
    !matches!(kind, ErrorKind::Busy | ErrorKind::Loading)
}

/// How to say it while a script runs: Redis would wait for replicas that lag, and hears of none of them before the script has ended. Pure.
fn now(mode: &'static str, silence: Silence) -> &'static str {
    match (mode, silence) {
        ("NOSAVE", Silence::Script) => "NOSAVE NOW",
        (mode, Silence::None | Silence::Script | Silence::Unknown) => mode,
    }
}

/// Whether the volume has room for a snapshot.
#[derive(Default)]
struct Full {
    /// Bytes free now.
    free: Option<u64>,
    /// Bytes it takes at most.
    needed: Option<u64>,
    /// Bytes that were free when it was last refused, and when.
    short: Option<(u64, Instant)>,
    said: Option<Instant>,
}

impl Full {
    async fn look(&mut self, shared: &Shared) {
        self.free = disk::room(&shared.options.data_dir);
        self.needed = handover::data_set(&shared.local).await.or(self.needed);
    }

    /// A snapshot is smaller than what it is made of, so only a refusal shows that it does not fit. After one there is to be more room before it
    /// is tried again, but for once a while: each attempt holds Redis up and takes what room is left. Pure.
    fn is_worth_trying(&self, now: Instant) -> bool {
        let (Some(free), Some((short, refused))) = (self.free, self.short) else { return true };
        let has_room = free > short || self.needed.is_some_and(|needed| needed <= free);
        has_room || now.saturating_duration_since(refused) >= ANEW
    }

    fn refused(&mut self) {
        self.short = self.free.map(|free| (free, Instant::now()));
    }

    fn say(&mut self, shared: &Shared) {
        if self.said.is_some_and(|said| said.elapsed() < ANEW) {
            return;
        }
        self.said = Some(Instant::now());
        let words = self.words(&shared.options.data_dir);
        tracing::error!("{words}");
        if shared.phase() == AgentPhase::Stopping {
            shared.enter(AgentPhase::Stopping, Some(words));
        }
    }

    /// What is missing, and what to do. Pure.
    fn words(&self, dir: &Path) -> String {
        let bytes = |number: Option<u64>| number.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
        format!(
            "what redis-server holds is nowhere else and could not be saved, so it is not ended: the volume at {} has {} bytes free, and a \
             snapshot takes up to {} bytes. Make spec.storage.size larger, or delete {}* there; what is not saved when the pod's grace period \
             is over is lost",
            dir.display(),
            bytes(self.free),
            bytes(self.needed),
            disk::QUARANTINE
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_save_that_did_not_fit_is_tried_again_once_there_is_more_room() {
        let now = Instant::now();
        let long_ago = now.checked_sub(ANEW).unwrap();
        let is_worth = |free, needed, short| Full { free, needed, short, said: None }.is_worth_trying(now);
        // It may compress well: nothing but a refusal shows that it does not fit.
        assert_eq!([is_worth(Some(1), Some(9), None), is_worth(None, None, None)], [true; 2]);
        let short = Some((1, now));
        assert_eq!([is_worth(Some(1), Some(9), short), is_worth(Some(0), None, short)], [false; 2]);
        assert_eq!([is_worth(Some(2), Some(9), short), is_worth(None, Some(9), short)], [true; 2]);
        assert!(is_worth(Some(9), Some(9), Some((9, now))), "it was refused for another reason than room");
        assert!(is_worth(Some(1), Some(9), Some((1, long_ago))), "it may be smaller by now");
    }

    #[test]
    fn what_is_missing_is_said_with_the_numbers_and_the_next_step() {
        let words = Full { free: Some(12), needed: Some(345), ..Full::default() }.words(Path::new("/data"));
        for part in ["/data has 12 bytes free", "takes up to 345 bytes", "spec.storage.size", "quarantine-*"] {
            assert!(words.contains(part), "{words}");
        }
    }
}
