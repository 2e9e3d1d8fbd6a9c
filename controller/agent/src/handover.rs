//! Stopping without loss: the primary role goes to a replica first, then Redis shuts down. I/O around pure choices.
//!
//! A signalled primary is replaced only after the node timeout, and politely stopped ones even later than killed ones
//! (reliability.md A3); a planned hand-over costs 10 ms and no write. `OK` to CLUSTER FAILOVER means "scheduled" and may
//! expire silently (performance.md T2), so only the own changed role counts. A replica that is about to be in sync is waited
//! for, and an attempt that came to nothing is followed by one more look and one more attempt: never a loop, a member that
//! must stop stops.

use std::time::Duration;

use futures::future::join_all;
use resp::{Command, Connection, Error, ErrorKind, ErrorReply, Info, Node, NodeId, Reply, Vendor};
use tokio::time::{Instant, sleep, timeout_at};
use types::{agent::AgentConfig, cluster::AppendOnly};

use self::{
    attempt::{FOLLOWED, MOVES, Tried},
    heirs::{Heir, Heirs, Others},
};
use crate::{local::Local, peers::Asker};

mod attempt;
mod heirs;

pub use attempt::Attempt;
pub(crate) use attempt::{imports, mark};
pub use resp::AppendOnlyFile as Log;

/// How long a look at one replica takes, which only decides who is asked first.
const LOOK: Duration = Duration::from_secs(3);
/// Attempts altogether, of those that say something.
const ATTEMPTS: usize = 2;
/// Replicas that are compared before an attempt.
const CANDIDATES: usize = 2;
/// The shortest and the longest patience of a hand-over; between them it is a quarter of the grace period, so that the shortest of those,
/// 30 s, also holds two attempts of 5 s.
const PATIENCE: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(600)];
/// How long a primary that has something to save waits for others' copies: its pod may have less time than it was made with (a node that shuts
/// down, an eviction).
const COPIES: Duration = Duration::from_secs(10);
/// How long a replica that has lost its link alone has to come back: it tries once a second.
const RECONNECT: Duration = Duration::from_secs(3);
/// Part of the grace period that stays for saving at least, where that may be needed: a quarter.
const SAVING_PART: u32 = 4;
/// Part of it that stays for the hand-over, however long saving may take: with a replica in sync nothing has to be saved.
const HANDING: Duration = Duration::from_secs(17);
/// What is saved in a second even by a slow disk; the grace period of a pod is made with the same (`build/stateful_set/pod.rs`).
const SAVED_PER_SECOND: u64 = 16 << 20;
/// How long each answer of the own Redis may take.
pub(crate) const OWN_ANSWER: Duration = Duration::from_secs(2);
/// Clients of this agent that come at a stop.
const ROOM: i64 = 64;
/// Why nobody is ordered to take over from a primary without slots.
const NOBODY_ELECTED: &str =
    "its first slot is on its way to it, and Redis elects nobody in place of a primary without slots";
/// How often a wait for somebody else's work looks again.
const PATIENCE_LOOK: Duration = Duration::from_millis(100);

/// How a hand-over went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is a replica in contact with its primary.
    NotNeeded,
    /// This member is a replica now.
    Done {
        /// Who took over.
        to: NodeId,
    },
    /// Nobody else is known to have what it has.
    Failed {
        /// Why, as a sentence.
        why: String,
    },
}

impl Outcome {
    /// Another member has the role and all that this one has.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        match self {
            Self::NotNeeded | Self::Done { .. } => true,
            Self::Failed { .. } => false,
        }
    }
}

/// Until when a hand-over does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// It waits for replicas to be in sync, for half-moved slots and for append-only files that are being written.
    waits: Instant,
    /// It waits for the heir's append-only file: as long, but where the disk here ends with the pod not longer than [`COPIES`].
    disks: Instant,
    /// It waits for replicas to get their copy, and until one may be ordered again. Where something has to be saved not longer than [`COPIES`].
    copies: Instant,
    /// A replica is asked, and ordered to take over. Whatever the replicas answer, and how slowly: what follows an order is over before the own
    /// Redis must be stopped, and leaves it the time to save.
    orders: Instant,
    /// A replica takes over only once its own disk is current: else what the disk here has may be better. Where that ends with the pod, it is
    /// only waited for.
    needs_disk: bool,
}

impl Limits {
    /// The grace period began at `began`, and the own Redis must be stopped from `stop` on. `saving` is how long it is expected to save its
    /// keys if nobody takes over; `None`: it has nothing to save. What is on the volume is there for the next pod if `stays`. Pure.
    #[must_use]
    pub fn new(began: Instant, stop: Instant, saving: Option<Duration>, stays: bool) -> Self {
        let [least, most] = PATIENCE;
        let whole = stop.saturating_duration_since(began);
        let most_kept = whole.saturating_sub(HANDING);
        let kept = saving.map_or(Duration::ZERO, |saving| saving.max(whole / SAVING_PART).min(most_kept));
        let orders = whole.saturating_sub(FOLLOWED).saturating_sub(kept);
        let waits = (whole / 4).clamp(least, most).min(orders);
        let copies = match saving {
            // Others' copies are all there will be, unless only the container is ended.
            _ if !stays => orders,
            Some(_) => waits.min(COPIES),
            None => waits,
        };
        let disks = if stays { waits } else { waits.min(COPIES) };
        let [waits, disks, copies, orders] = [waits, disks, copies, orders].map(|part| began + part);
        Self { waits, disks, copies, orders, needs_disk: stays }
    }

    /// Until when anybody is ordered to take over.
    #[must_use]
    pub fn orders(&self) -> Instant {
        self.orders
    }
}

/// What was attempted so far: it outlasts an own Redis that does not answer for a moment.
#[derive(Debug, Default)]
pub struct Attempts(Vec<Tried>);

/// Hands the primary role over, if this member has it and a replica is in sync, or is so in time.
///
/// # Errors
/// When the own Redis does not answer. It may be called again with the same attempts.
pub async fn hand_over(
    local: &Local,
    asker: &Asker,
    limits: Limits,
    Attempts(tried): &mut Attempts,
) -> Result<Outcome, Error> {
    let (began, mut waits) = (Instant::now(), false);
    let mut own = local.open(OWN_ANSWER).await?;
    loop {
        if own.is_broken() {
            own = local.open(OWN_ANSWER).await?;
        }
        let heirs = match look(&mut own, tried).await? {
            Sight::Role(heirs) => heirs,
            Sight::First if Instant::now() < limits.waits.min(began + MOVES) => {
                sleep(PATIENCE_LOOK).await;
                continue;
            }
            Sight::First => return Ok(Outcome::Failed { why: NOBODY_ELECTED.to_owned() }),
            Sight::Gone(heir, outcome) => return Ok(gone(asker, &heir, outcome, tried, limits).await),
            Sight::End(outcome) => return Ok(outcome),
        };
        let (others, now) = (heirs.others, Instant::now());
        let until = worth_waiting(others, began, limits);
        let turns = heirs::turns(heirs.ready, tried, (now, until, limits.copies), local.node_timeout());
        let is_tried_enough = is_tried_enough(tried, Instant::now() < limits.copies);
        if !is_tried_enough && let Some(heir) = first(local, asker, turns.now, limits).await {
            let end = attempt::attempt((local, &mut own), asker, &heir, limits).await;
            let took_over = end.end == Attempt::TookOver;
            if !took_over {
                tracing::warn!(id = %heir.id, end = %end.end, "an attempt to hand over came to nothing");
            }
            tried.push(end);
            if took_over {
                let done = Outcome::Done { to: heir.id.clone() };
                return Ok(gone(asker, &heir, done, tried, limits).await);
            }
        } else if !is_tried_enough && (now < until || turns.later) {
            if !waits {
                tracing::info!(?others, "waiting for a replica that can take over");
                waits = true;
            }
            sleep(PATIENCE_LOOK).await;
        } else {
            return Ok(Outcome::Failed { why: why(tried, others) });
        }
    }
}

/// What one look at the own Redis says.
enum Sight {
    /// It has a role to hand over.
    Role(Heirs),
    /// It will have one once its first slot has come: before that no order could be carried out.
    First,
    /// It follows another member, and what that means if that one lasts.
    Gone(Heir, Outcome),
    /// It has none, or had none.
    End(Outcome),
}

async fn look(own: &mut Connection, tried: &[Tried]) -> Result<Sight, Error> {
    let end = |why: &str| Sight::End(Outcome::Failed { why: why.to_owned() });
    let table = match own.cluster_nodes().await {
        Ok(table) => table,
        Err(error) => {
            return match error.refusal().map(|refusal| &refusal.kind) {
                None | Some(ErrorKind::Busy) => Err(error),
                Some(ErrorKind::Loading) => Ok(end("it loads its data set, which its disk has")),
                Some(_) => Ok(end("a single server has no replica that could take over")),
            };
        }
    };
    let info = own.info(&["server", "replication"]).await?;
    let Some(outcome) = late_heir(&table, tried).or_else(|| without_role(&table, &info)) else {
        let heirs = heirs::heirs(&table, &info.replicas());
        let is_vain = !heirs.ready.is_empty() && !may_be_elected(&table, &info);
        return Ok(if is_vain { Sight::First } else { Sight::Role(heirs) });
    };
    Ok(match (heirs::primary(&table), outcome) {
        (Some(heir), outcome) => Sight::Gone(heir, outcome),
        (None, Outcome::NotNeeded) => end("it is a replica, and nobody knows where its primary is"),
        (None, outcome) => Sight::End(outcome),
    })
}

/// What becomes of a member that has no role, or none any more: the heir is told what was half moved. If it was about to stop when the role
/// came, that ends with it, so it is asked once more.
async fn gone(asker: &Asker, heir: &Heir, outcome: Outcome, tried: &[Tried], limits: Limits) -> Outcome {
    let marks = attempt::last_marks(tried);
    let over = limits.orders + FOLLOWED;
    if !marks.is_empty() && timeout_at(over, attempt::mark_late(asker, heir, marks)).await.is_err() {
        tracing::warn!(id = %heir.id, "half-moved slots could not be marked at the new primary in time");
    }
    if matches!(outcome, Outcome::Failed { .. }) {
        return outcome;
    }
    confirmed(outcome, &heir.id, lasts(asker, heir, over.min(Instant::now() + FOLLOWED)).await)
}

/// Whether it runs on, by its agent's word; one that does not answer for a moment is asked again.
async fn lasts(asker: &Asker, heir: &Heir, until: Instant) -> Result<(), String> {
    loop {
        let told = timeout_at(until, asker.lasts(&heir.id, heir.address)).await;
        match told {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if error.is_answer() => return Err(error.to_string()),
            Ok(Err(_)) if Instant::now() < until => sleep(PATIENCE_LOOK).await,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("its agent was not heard in time".to_owned()),
        }
    }
}

/// How it went, after the word of the agent of the member that has the role: a link that looks up may lead to a machine that is gone. Pure.
fn confirmed(outcome: Outcome, primary: &NodeId, lasts: Result<(), String>) -> Outcome {
    let Err(error) = lasts else { return outcome };
    let why = match outcome {
        Outcome::Done { to } => format!("replica {to} took over, but {error}"),
        Outcome::NotNeeded => format!("it is a replica of {primary}, but {error}"),
        Outcome::Failed { why } => why,
    };
    Outcome::Failed { why }
}

/// Who has taken over after the attempt had been given up. Pure.
fn late_heir(table: &[Node], tried: &[Tried]) -> Option<Outcome> {
    let to = table.iter().find(|node| node.flags.myself)?.primary.clone()?;
    tried.iter().any(|tried| tried.id == to).then_some(Outcome::Done { to })
}

/// Whether no further attempt is made. One in which the own Redis or the replica was silent says nothing of what another would come to: time
/// alone limits those, and a silent replica is not waited for longer than a copy. Pure.
fn is_tried_enough(tried: &[Tried], waits: bool) -> bool {
    let counts = |end: &Attempt| match end {
        Attempt::Deaf { .. } => false,
        Attempt::Silent { .. } => !waits,
        Attempt::TookOver
        | Attempt::Declined { .. }
        | Attempt::Behind { .. }
        | Attempt::Late
        | Attempt::Refused { .. }
        | Attempt::Lost
        | Attempt::Expired => true,
    };
    tried.iter().filter(|tried| counts(&tried.end)).count() >= ATTEMPTS
}

/// Until when replicas that are not ready are worth waiting for. Pure.
fn worth_waiting(others: Others, began: Instant, limits: Limits) -> Instant {
    match others {
        Others::Gone => began,
        Others::Linked => limits.copies.min(began + RECONNECT),
        Others::Attached => limits.copies,
    }
}

/// Why nobody took over, as a sentence. Pure.
fn why(tried: &[Tried], others: Others) -> String {
    if tried.is_empty() {
        let what = match others {
            Others::Gone => "it has no replica",
            Others::Linked => "its replicas follow it not, or not yet",
            Others::Attached => "its replicas were not in sync in time",
        };
        return what.to_owned();
    }
    tried.iter().map(|Tried { id, end, .. }| format!("replica {id}: {end}")).collect::<Vec<_>>().join("; then ")
}

/// Of the first candidates the first one whose disk is current: the others' may take a while, or nobody answers for them.
async fn first(local: &Local, asker: &Asker, ranked: Vec<Heir>, limits: Limits) -> Option<Heir> {
    let until = limits.orders.min(Instant::now() + LOOK);
    let looks = ranked.iter().take(CANDIDATES).map(|heir| async move {
        let look = async {
            let mut replica = asker.open_lasting(&heir.id, heir.address).await.ok()?;
            replica.info(&["persistence"]).await.ok()
        };
        let info = timeout_at(until, look).await.ok().flatten();
        info.is_some_and(|info| behind(&info, local.logs_writes()).is_none())
    });
    let is_ready = if ranked.len() > 1 { join_all(looks).await } else { Vec::new() };
    let best = is_ready.into_iter().position(|is_ready| is_ready).unwrap_or(0);
    ranked.into_iter().nth(best)
}

/// What becomes of a member that has no role to hand over: one that owns slots, or gets its first, has. Pure.
fn without_role(table: &[Node], info: &Info) -> Option<Outcome> {
    let myself = table.iter().find(|node| node.flags.myself)?;
    if !myself.flags.primary {
        let linked = info.get("master_link_status") == Some("up");
        let why = "it is a replica without a link to its primary, and may hold the only copy";
        return Some(if linked { Outcome::NotNeeded } else { Outcome::Failed { why: why.to_owned() } });
    }
    let owns_nothing = myself.slots.is_empty() && myself.importing.is_empty();
    owns_nothing.then(|| Outcome::Failed { why: "it owns no slot that could be handed over".to_owned() })
}

/// Whether a replica can be elected in place of this member. Redis elects none in place of a primary without slots, Valkey does from version 8 on
/// (`clusterHandleSlaveFailover`). An order would hold the clients' writes for five seconds, and expire. Pure.
fn may_be_elected(table: &[Node], info: &Info) -> bool {
    let owns = table.iter().any(|node| node.flags.myself && !node.slots.is_empty());
    let major = info.version().and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    owns || (info.vendor() == Vendor::Valkey && major >= Some(8))
}

/// Waits, before the own Redis is stopped, until the first append-only file is at least being written: Redis refuses SHUTDOWN then, but not
/// while that is only scheduled, as behind a child that saves. One that has failed is scheduled for an hour, perhaps.
pub async fn await_own_disk(local: &Local, until: Instant) {
    while local.logs_writes() && Instant::now() < until {
        let info = info(local, &["persistence"]).await.unwrap_or_default();
        let is_scheduled = info.flag("aof_rewrite_scheduled") == Some(true);
        if !is_scheduled || info.append_only_file() == Log::Failed {
            return;
        }
        sleep(PATIENCE_LOOK).await;
    }
}

/// Why its disk may hold an older data set than its memory, where every write `is_wanted` there. Pure.
pub(crate) fn behind(info: &Info, is_wanted: bool) -> Option<&'static str> {
    match info.append_only_file() {
        Log::Current => None,
        Log::Rewriting => {
            Some("its append-only file is being written anew, and a restart would load an older data set")
        }
        Log::Failed => Some("its append-only file could not be written, and a restart would load an older data set"),
        Log::Off => is_wanted
            .then_some("its append-only file is not switched on yet, and a restart would load an older data set"),
    }
}

/// What it holds may be nowhere else; keys that could not be counted count. No keys count, too, where the log has failed: it would bring back what was
/// deleted. But those of a replica are none that it was sent. Pure.
#[must_use]
pub fn may_be_last(outcome: &Outcome, keys: Option<i64>, is_replica: bool, log: Option<Log>) -> bool {
    let is_any = keys != Some(0) || (log == Some(Log::Failed) && !is_replica);
    is_any && !outcome.is_elsewhere()
}

/// How to shut down. Pure.
///
/// With an append-only file everything is written and synced anyway, unless that has failed. With save points Redis saves. A member that keeps
/// nothing on disk, or could not, saves only when it goes away as the last one that has what it has ([`may_be_last`]).
#[must_use]
pub fn shutdown_mode(config: &AgentConfig, is_last: bool, log: Option<Log>) -> &'static str {
    match config.append_only {
        AppendOnly::EverySec | AppendOnly::Always => match log {
            Some(Log::Current | Log::Rewriting) => "NOSAVE",
            Some(Log::Failed) if !is_last => "NOSAVE",
            Some(Log::Failed | Log::Off) | None => "SAVE",
        },
        AppendOnly::Off if !config.snapshots.is_empty() || is_last => "SAVE",
        AppendOnly::Off => "NOSAVE",
    }
}

/// What keeps the own Redis from answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It answers.
    None,
    /// A script runs, and it refuses everything else meanwhile.
    Script,
    /// Nobody knows.
    Unknown,
}

/// Whether the own Redis answers at this moment.
pub async fn silence(local: &Local) -> Silence {
    match local.ask(&[Command::new("PING")]).await.as_deref() {
        Ok([Reply::Error(words)]) if ErrorReply::parse(words).kind == ErrorKind::Busy => Silence::Script,
        Ok(_) => Silence::None,
        Err(_) => Silence::Unknown,
    }
}

/// Ends a script or function that has written nothing: Redis saves nothing while one runs, and one without an end would take all that was not saved
/// with it. Whether it has written: then Redis refuses to (UNKILLABLE).
pub async fn end_script(local: &Local) -> bool {
    let kill = ["SCRIPT", "FUNCTION"].map(|what| Command::new(what).arg("KILL"));
    let Ok(replies) = local.ask(&kill).await else { return false };
    if replies.iter().any(|reply| matches!(reply, Reply::Status(_))) {
        tracing::warn!("a script that had written nothing was ended: redis-server has to end");
    }
    replies.iter().any(|reply| matches!(reply, Reply::Error(words) if words.starts_with("UNKILLABLE")))
}

/// Sees to it that this agent's next connections are let in however many clients there are (`maxclients`), as long as the one that it has
/// lasts. What cannot be changed stays as it is.
pub async fn make_room(local: &Local) {
    let Ok(info) = info(local, &["clients"]).await else { return };
    let number = |name: &str| info.number(name).unwrap_or_default();
    let there = number("connected_clients").saturating_add(number("cluster_connections"));
    if number("maxclients") > there.saturating_add(ROOM) {
        return;
    }
    let more = there.saturating_add(2 * ROOM).to_string();
    let _ = local.ask(&[Command::new("CONFIG").args(["SET", "maxclients", &more])]).await;
}

/// Whether it is in the middle of writing its append-only file: while that is the first one Redis refuses to end.
pub async fn writes_its_log(local: &Local) -> bool {
    let info = info(local, &["persistence"]).await;
    info.is_ok_and(|info| info.rewrites_its_log())
}

/// Whether the own Redis may be a primary at this moment: one that does not answer may.
pub async fn may_be_primary(local: &Local) -> bool {
    let info = info(local, &["replication"]).await;
    !info.is_ok_and(|info| info.get("role") == Some("slave"))
}

/// How long the own Redis would save its keys, on a slow disk. Zero if it does not say.
pub async fn saving_time(local: &Local) -> Duration {
    let used = info(local, &["memory"]).await.ok().and_then(|info| info.number("used_memory"));
    let bytes = used.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default();
    Duration::from_secs(bytes.div_ceil(SAVED_PER_SECOND))
}

/// So many bytes a snapshot of the own Redis has at most: what its keys and values take in memory, without what finds them there.
pub async fn data_set(local: &Local) -> Option<u64> {
    let bytes = info(local, &["memory"]).await.ok()?.number("used_memory_dataset")?;
    u64::try_from(bytes).ok()
}

/// Whether a restart would find every write in the append-only file: nothing has to be saved.
pub async fn keeps_all(local: &Local) -> bool {
    local.logs_writes() && info(local, &["persistence"]).await.is_ok_and(|info| finds_all(&info))
}

/// While the file is first written it counts as switched on, and Redis refuses to end. Pure.
fn finds_all(info: &Info) -> bool {
    info.append_only_file() == Log::Current
}

/// What `INFO` says in one go; for those who only have the shared connection.
///
/// # Errors
/// When Redis does not answer.
pub async fn info(local: &Local, sections: &[&str]) -> Result<Info, Error> {
    let replies = local.ask(&[Command::new("INFO").args(sections)]).await?;
    Ok(replies.first().and_then(Reply::text).map(Info::parse).unwrap_or_default())
}

#[cfg(test)]
mod tests;
