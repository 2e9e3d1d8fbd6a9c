//! Has redis-server end, without the loss of what is nowhere else. I/O around pure choices.
//!
//! Redis refuses to end while it cannot save, and while its append-only file is first written: what is on disk is older than what is in memory
//! then, and a kill would lose it. On a full disk that lasts until somebody makes room; what is not saved by the end of the grace period ends with the pod.

use std::{future::pending, sync::Arc, time::Duration};

use resp::{Command, Connection, Error, ErrorKind, Info};
use rustix::process::Signal;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use types::agent::AgentConfig;

use self::full::Full;
use crate::{
    disk::{self, Stamp},
    handover::{self, Log, Outcome, Silence},
    process::{Exit, Record},
    shared::Shared,
};

mod full;

/// How long redis-server may show no work before it counts as hung.
const STALL: Duration = Duration::from_secs(20);
/// After a refused SHUTDOWN, or a hand-over that Redis did not answer.
pub(crate) const AGAIN: Duration = Duration::from_millis(500);
/// How long redis-server has after SIGTERM before SIGKILL, when SHUTDOWN did not work.
pub(crate) const AFTER_TERM: Duration = Duration::from_secs(5);
/// How long an attempt to save may take that nothing of ours ends: more than any grace period.
const SAVES: Duration = Duration::from_secs(24 * 3600);
/// Sections of INFO that say what it holds.
const SEEN: &[&str] = &["persistence", "replication", "keyspace"];
/// How often what is missing is said again, somebody is asked again to take over, and saving is tried again without more room: Redis may have
/// refused for another reason.
const ANEW: Duration = Duration::from_secs(60);

/// How redis-server is to be shut down.
pub(crate) struct LastWords {
    /// How the hand-over went.
    pub(crate) outcome: Outcome,
    /// Until when it may take.
    pub(crate) until: Instant,
    /// Until when it is told to again after it has refused.
    pub(crate) tries: Instant,
}

impl LastWords {
    /// What it is told, by what it says last. What it has while it loads, its disk or its primary has. Pure.
    fn order(&self, config: &AgentConfig, sight: Sight) -> Order {
        let is_last = handover::may_be_last(&self.outcome, sight.keys, sight.is_replica, sight.log);
        // It was emptied for what its primary sends, and could not load that. Its files hold what it had: a snapshot of nothing would be put over them.
        let is_emptied = sight.is_replica && sight.keys == Some(0) && sight.log == Some(Log::Off);
        let has_files = is_emptied && config.append_only.keeps_every_write();
        let is_unsaved = sight.is_loading || has_files;
        // Redis refuses only while the first file is being written, and ends whatever else a child of it writes.
        let mode = match sight.is_put_off && is_last {
            _ if is_unsaved => "NOSAVE",
            true => "SAVE",
            false => handover::shutdown_mode(config, is_last, sight.log),
        };
        Order { mode, is_last: is_last && mode == "SAVE" }
    }

    /// How long it may take to answer: for as long as there is time, and long enough to be heard at the end of it.
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).max(handover::OWN_ANSWER)
    }
}

/// What redis-server says of what it holds; unknown is not nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Sight {
    log: Option<Log>,
    keys: Option<i64>,
    is_replica: bool,
    is_loading: bool,
    /// Its append-only file is to be written anew, and is not yet: where it is the first one, only a snapshot has what it holds.
    is_put_off: bool,
}

impl Sight {
    /// `None`: it says nothing. Keys that are being loaded are not counted. Pure.
    fn of(info: &Info, log: Option<Log>) -> Option<Self> {
        let is_replica = info.get("role")? == "slave";
        let is_loading = info.flag("loading")?;
        let is_put_off = log == Some(Log::Rewriting) && info.flag("aof_rewrite_in_progress") == Some(false);
        Some(Self { log, keys: (!is_loading).then(|| info.keys()), is_replica, is_loading, is_put_off })
    }
}

/// How redis-server is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    mode: &'static str,
    /// It saves what may be nowhere else.
    is_last: bool,
}

/// How a process went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// After it was told to save, when this snapshot lay there.
    Saved { before: Stamp },
    /// Without.
    Unsaved,
    /// Not yet: it may be that somebody can take over now.
    Held,
    /// It hangs, or time is up.
    Not,
}

/// Has the process end, for as long as it takes.
#[derive(Default)]
pub(crate) struct Shutdown {
    attempts: watch::Sender<Attempts>,
    full: Full,
}

impl Shutdown {
    /// Sees to it that the process is gone: whether a snapshot lies there now that has all it had. `None`: it lives, as what it has is nowhere else,
    /// and the others are to be asked again. `exit`: how it ends, if it is a child of this agent.
    pub(crate) async fn end(
        &mut self,
        shared: &Arc<Shared>,
        (process, exit): (&Record, Option<watch::Receiver<Option<Exit>>>),
        last: &LastWords,
    ) -> Option<bool> {
        match self.tell(shared, process, last).await {
            Ended::Saved { before } => {
                let is_new = disk::is_newly_saved(before, disk::snapshot_stamp(&shared.options.data_dir));
                return Some(is_new && ended_well(exit).await);
            }
            Ended::Unsaved => return Some(false),
            Ended::Held => return None,
            Ended::Not => {}
        }
        process.signal(Signal::TERM);
        if !process.gone_within(AFTER_TERM).await {
            tracing::error!("redis-server did not stop in time and is killed");
            process.signal(Signal::KILL);
            process.gone_within(AFTER_TERM).await;
        }
        sleep(Duration::ZERO).await;
        Some(false)
    }

    /// Sends SHUTDOWN until the process is gone.
    async fn tell(&mut self, shared: &Arc<Shared>, process: &Record, last: &LastWords) -> Ended {
        let (attempts, full) = (&self.attempts, &mut self.full);
        let is_saving = || attempts.borrow().saves_last() || saves_unasked(shared, process, last);
        let gone = async {
            let mut until = last.until;
            while !process.gone_or_stuck(until, STALL).await {
                // A write that is slow looks like a server that hangs (FUSE and network file systems wait without a trace): while a snapshot is being
                // written, only the kubelet knows how much time there is.
                let is_stuck = Instant::now() < until && !process.saves_in(&shared.options.data_dir);
                // What is nowhere else is saved for as long as the pod lasts; what hangs saves nothing.
                if !attempts.borrow().is_kept && (is_stuck || !is_saving()) {
                    return Ended::Not;
                }
                until = Instant::now() + SAVES;
                sleep(AGAIN).await;
            }
            attempts.borrow().saving.map_or(Ended::Unsaved, |saving| Ended::Saved { before: saving.before })
        };
        tokio::select! {
            ended = gone => ended,
            ended = repeat(shared, process, last, (attempts, full)) => ended,
        }
    }
}

/// Whether it ended with code 0, as after all that it was told to do: it ends with another code, or by a signal, where it could not save.
async fn ended_well(exit: Option<watch::Receiver<Option<Exit>>>) -> bool {
    let Some(mut exit) = exit else { return false };
    let told = tokio::time::timeout(AFTER_TERM, exit.wait_for(Option::is_some)).await;
    matches!(told, Ok(Ok(how)) if *how == Some(Exit::Code(0)))
}

/// Whether it saves what is nowhere else, as an agent of before has told it to.
fn saves_unasked(shared: &Shared, process: &Record, last: &LastWords) -> bool {
    !last.outcome.is_elsewhere() && process.saves_in(&shared.options.data_dir)
}

/// What is known of the attempts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Attempts {
    /// One to save that is not answered: no reply is what success looks like.
    saving: Option<Saving>,
    /// The last one was refused, and what is in memory may be nowhere else: it is not killed.
    is_kept: bool,
}

/// One attempt to save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Saving {
    /// What lay there before.
    before: Stamp,
    is_last: bool,
}

impl Attempts {
    /// The next attempt. Once there is nothing more to save, it is not kept for that. Pure.
    fn begun(self, order: Order, before: Stamp) -> Self {
        let saving = (order.mode == "SAVE").then_some(Saving { before, is_last: order.is_last });
        Self { saving, is_kept: self.is_kept && order.is_last }
    }

    /// It came to this. Whoever answers does not save; one that was not heard changes nothing about the one `before`. Pure.
    fn failed(self, before: Self, error: &Error) -> Self {
        let is_kept = self.is_kept || (self.saves_last() && is_refused(error));
        let saving = match error {
            Error::Refused { .. } => None,
            Error::Connect { .. } | Error::Broken { .. } => before.saving,
            Error::Io { .. } | Error::Deadline { .. } | Error::Frame { .. } | Error::Shape { .. } => self.saving,
        };
        Self { saving, is_kept }
    }

    fn saves_last(&self) -> bool {
        self.saving.is_some_and(|saving| saving.is_last)
    }
}

/// Redis says that it cannot end in order. Whom it does not let in, or not do this, hears nothing of what it could save, and that a script runs or
/// that it loads passes by itself. Pure.
fn is_refused(error: &Error) -> bool {
    match error {
        Error::Refused { command, reply, .. } => command == "SHUTDOWN" && reply.kind == ErrorKind::Other,
        Error::Connect { .. }
        | Error::Io { .. }
        | Error::Deadline { .. }
        | Error::Frame { .. }
        | Error::Shape { .. }
        | Error::Broken { .. } => false,
    }
}

/// Returns when it is not worth telling any more, or not without asking the others again.
async fn repeat(
    shared: &Arc<Shared>,
    process: &Record,
    last: &LastWords,
    (attempts, full): (&watch::Sender<Attempts>, &mut Full),
) -> Ended {
    let (asked, mut told, mut sight) = (Instant::now(), false, Sight::default());
    while process.is_alive() {
        if attempts.borrow().is_kept && asked.elapsed() >= ANEW {
            return Ended::Held;
        }
        if let Err(error) = attempt(shared, last, (attempts, full), &mut sight).await {
            if !told {
                tracing::warn!(%error, "SHUTDOWN is not followed yet; it is tried again");
                told = true;
            }
            let is_kept = attempts.borrow().is_kept;
            if is_kept && is_refused(&error) {
                full.refused();
                full.say(shared);
            }
            let is_worked_on = is_kept || saves_unasked(shared, process, last);
            if Instant::now() >= last.tries && !is_worked_on && !handover::writes_its_log(&shared.local).await {
                return Ended::Not;
            }
        }
        sleep(AGAIN).await;
    }
    pending().await
}

/// Asks what it holds, and tells it once on the same connection: what it said before may be wrong by now, as its log may have failed since. It may take
/// as long as saving takes: what is nowhere else has all the time there is. Success is a connection that ends without a reply.
///
/// # Errors
/// When Redis does not answer, or refuses: it cannot save, a script runs, or its append-only file is written for the first time. While it saves it lets
/// nobody in.
async fn attempt(
    shared: &Shared,
    last: &LastWords,
    (attempts, full): (&watch::Sender<Attempts>, &mut Full),
    sight: &mut Sight,
) -> Result<(), Error> {
    let left = last.left();
    let mut redis = shared.local.open(left).await?;
    let silence = look(shared, &mut redis, sight).await?;
    let order = last.order(&shared.inputs().config, *sight);
    if order.mode == "SAVE" && !full.prepare(shared).await {
        return Ok(());
    }
    redis.set_deadline(if order.is_last { SAVES } else { left });
    let former = *attempts.borrow();
    // The last thing before: what comes after it is of this attempt.
    attempts.send_replace(former.begun(order, disk::snapshot_stamp(&shared.options.data_dir)));
    let shutdown = Command::new("SHUTDOWN").args(now(order.mode, silence).split(' '));
    match redis.command(&shutdown).await {
        Err(Error::Io { .. }) | Ok(_) => Ok(()),
        Err(error) => {
            attempts.send_modify(|attempts| *attempts = attempts.failed(former, &error));
            Err(error)
        }
    }
}

/// What it says now, and whether a script keeps it from saying more. One that has written nothing is ended first, as it would be anyway: the log may have
/// failed before it, unseen. One that has written began while Redis took writes, so what it said last of its log holds, but for what it was sent together
/// with the script.
///
/// # Errors
/// When Redis does not answer, or refuses, also as a script runs of which nobody knows whether it has written.
async fn look(shared: &Shared, redis: &mut Connection, sight: &mut Sight) -> Result<Silence, Error> {
    let is_busy = |error: &Error| error.refusal().is_some_and(|reply| reply.kind == ErrorKind::Busy);
    let (mut told, mut has_written) = (redis.info(SEEN).await, false);
    if told.as_ref().is_err_and(is_busy) {
        has_written = handover::end_script(&shared.local).await;
        told = redis.info(SEEN).await;
    }
    let (info, silence) = match told {
        Err(error) if has_written && is_busy(&error) => (Info::default(), Silence::Script),
        told => (told?, Silence::None),
    };
    let log = shared.note_log(&info).or_else(|| shared.last_log().filter(|_| silence == Silence::Script));
    *sight = Sight::of(&info, log).unwrap_or(Sight { log, is_loading: false, ..*sight });
    Ok(silence)
}

/// How to say it while a script runs: Redis would wait for replicas that lag, and hears of none of them before the script has ended. Pure.
fn now(mode: &'static str, silence: Silence) -> &'static str {
    match (mode, silence) {
        ("NOSAVE", Silence::Script) => "NOSAVE NOW",
        (mode, Silence::None | Silence::Script | Silence::Unknown) => mode,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use types::cluster::AppendOnly;

    use super::*;

    fn last(outcome: Outcome) -> LastWords {
        LastWords { outcome, until: Instant::now(), tries: Instant::now() }
    }

    fn failed() -> Outcome {
        Outcome::Failed { why: String::new() }
    }

    fn refused(command: &str, text: &str) -> Error {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 6379));
        Error::Refused { command: command.to_owned(), address, reply: resp::ErrorReply::parse(text) }
    }

    fn stamp(inode: u64) -> Stamp {
        Some((inode, std::time::SystemTime::UNIX_EPOCH))
    }

    const SAVE: Order = Order { mode: "SAVE", is_last: true };
    const CANNOT: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

    /// Before, an agent that Redis did not let in kept it alive until the kubelet killed it, and what SIGTERM saves was lost.
    #[test]
    fn only_a_shutdown_that_redis_cannot_follow_keeps_it_alive() {
        let kept = |order: Order, error: &Error| {
            let former = Attempts::default();
            former.begun(order, None).failed(former, error).is_kept
        };
        assert!(kept(SAVE, &refused("SHUTDOWN", CANNOT)));
        assert!(!kept(Order { is_last: false, ..SAVE }, &refused("SHUTDOWN", CANNOT)), "others have it");
        let of_another = [
            ("AUTH", "WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH", "ERR max number of clients reached"),
            ("SHUTDOWN", "NOPERM User kun-agent has no permissions to run the 'shutdown' command"),
            ("SHUTDOWN", "BUSY Redis is busy running a script."),
            ("SHUTDOWN", "LOADING Redis is loading the dataset in memory"),
        ];
        assert_eq!(of_another.map(|(command, text)| kept(SAVE, &refused(command, text))), [false; 5]);
    }

    #[test]
    fn a_server_is_kept_only_while_it_has_something_to_save() {
        let former = Attempts::default().begun(SAVE, None);
        let kept = former.failed(former, &refused("SHUTDOWN", CANNOT));
        assert!(kept.is_kept && kept.begun(SAVE, None).is_kept);
        assert!(!kept.begun(Order { mode: "NOSAVE", is_last: false }, None).is_kept, "its log has everything again");
    }

    /// Before, the exit of a server that somebody else had end counted as that of one that had saved.
    #[test]
    fn only_an_attempt_that_is_not_answered_may_have_saved() {
        let none = Attempts::default();
        let begun = none.begun(SAVE, stamp(1));
        assert_eq!(begun.saving, Some(Saving { before: stamp(1), is_last: true }));
        let answered = begun.failed(none, &refused("SHUTDOWN", CANNOT));
        assert_eq!(answered.saving, None);
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 6379));
        let silent = || Error::Deadline { command: "SHUTDOWN".to_owned(), address, deadline: SAVES };
        assert_eq!(begun.failed(none, &silent()).saving, begun.saving);
        // While it saves it lets nobody in: the attempt of before goes on.
        let shut = || Error::Connect { address, source: std::io::ErrorKind::TimedOut.into() };
        assert_eq!(begun.begun(SAVE, stamp(2)).failed(begun, &shut()).saving, begun.saving);
        assert_eq!(none.begun(SAVE, stamp(2)).failed(none, &shut()).saving, None);
        assert_eq!(begun.begun(Order { mode: "NOSAVE", is_last: false }, stamp(2)).saving, None);
    }

    /// Redis makes `NOSAVE` of it itself then, and ends with code 0.
    #[test]
    fn a_server_that_loads_is_not_told_to_save() {
        let config = crate::config::fixture::config();
        let sight = |loading: u8| {
            let info = Info::parse(&format!("role:slave\nloading:{loading}\ndb0:keys=2\ndb3:keys=1\n"));
            Sight::of(&info, Some(Log::Off)).unwrap()
        };
        assert_eq!([sight(0).keys, sight(1).keys], [Some(3), None]);
        assert_eq!(last(failed()).order(&config, sight(0)), SAVE);
        assert_eq!(last(failed()).order(&config, sight(1)), Order { mode: "NOSAVE", is_last: false });
        let emptied = |role: &str, keys: &str, log| {
            let sight = Sight::of(&Info::parse(&format!("role:{role}\nloading:0\n{keys}")), Some(log)).unwrap();
            last(failed()).order(&AgentConfig { append_only: AppendOnly::EverySec, ..config.clone() }, sight).mode
        };
        assert_eq!(
            emptied("slave", "", Log::Off),
            "NOSAVE",
            "its files have what it had before it was sent everything"
        );
        assert_eq!([emptied("slave", "db0:keys=1\n", Log::Off), emptied("master", "", Log::Off)], ["SAVE"; 2]);
        assert!(Sight::of(&Info::default(), None).is_none(), "an error is no answer");
        assert_eq!(last(failed()).order(&config, Sight::default()), SAVE, "unknown is not nothing");
    }
}
