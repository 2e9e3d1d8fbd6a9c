//! Stopping without loss: the primary role goes to a replica first, then Redis shuts down. I/O around two pure choices.
//!
//! A signalled primary is replaced only after the node timeout, and politely stopped ones even later than killed ones
//! (reliability.md A3); a planned hand-over costs 10 ms and no write. `OK` to CLUSTER FAILOVER means "scheduled" and may
//! expire silently (performance.md T2), so only the own changed role counts. Each candidate is asked once, two at most:
//! never a loop, a member that must stop stops.

use std::time::Duration;

use resp::{AppendOnlyFile, Command, Connection, Error, Info, Node, NodeId, Reply, Role, bus, info::ReplicaLine};
use tokio::time::{Instant, sleep, timeout_at};
use types::{agent::AgentConfig, cluster::AppendOnly};

use crate::{local::Local, peers::Asker};

/// How long one replica has to take over; Redis itself gives up after 5 s.
const TAKE_OVER: Duration = Duration::from_millis(5200);
/// How long a look at one replica takes, which only decides who is asked first.
const LOOK: Duration = Duration::from_secs(3);
/// How often the own role is looked at meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// An order is followed for so long at most: its answer may take 3 s, the replica gives up after 5 s, and the rest is for the last look.
const FOLLOWED: Duration = Duration::from_secs(10);
/// Replicas that are asked, one after the other.
const CANDIDATES: usize = 2;
/// The shortest and the longest patience of a hand-over; between them it is a quarter of the grace period, so that the shortest of those,
/// 30 s, also holds two attempts of 5 s.
const PATIENCE: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(600)];
/// How long it waits for slots that are half moved: what is left is marked at the heir, and the pod may have less time than it was made with
/// (a node that shuts down, an eviction).
const MOVES: Duration = Duration::from_secs(10);
/// How often a wait for somebody else's work looks again.
const PATIENCE_LOOK: Duration = Duration::from_millis(100);
/// A replica that has not acknowledged for longer is not in sync.
const LAG_SECONDS: i64 = 2;

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

/// Until when a hand-over does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// It waits for half-moved slots and for append-only files that are being written.
    waits: Instant,
    /// A replica is asked, and ordered to take over. Whatever the replicas answer, and how slowly: what follows an order is over before the own
    /// Redis must be stopped.
    orders: Instant,
}

impl Limits {
    /// The grace period began at `began`, and the own Redis must be stopped from `stop` on. Pure.
    #[must_use]
    pub fn new(began: Instant, stop: Instant) -> Self {
        let [least, most] = PATIENCE;
        let whole = stop.saturating_duration_since(began);
        Self { waits: began + (whole / 4).clamp(least, most), orders: began + whole.saturating_sub(FOLLOWED) }
    }
}

/// Hands the primary role over, if this member has it and a replica is in sync.
///
/// # Errors
/// When the own Redis does not answer.
pub async fn hand_over(local: &Local, asker: &Asker, limits: Limits) -> Result<Outcome, Error> {
    let mut connection = local.open(Duration::from_secs(2)).await?;
    let table = match connection.cluster_nodes().await {
        Ok(table) => table,
        Err(error) if error.refusal().is_some() => {
            return Ok(Outcome::Failed { why: "a single server has no replica that could take over".to_owned() });
        }
        Err(error) => return Err(error),
    };
    let info = connection.info(&["replication"]).await?;
    if let Some(outcome) = without_role(&table, &info) {
        return Ok(outcome);
    }
    let candidates = successors(&table, &info.replicas());
    let mut why = format!("it has no replica in sync ({} attached)", info.replicas().len());
    for (id, address) in ready_first(local, asker, candidates, limits.orders).await {
        match ask_to_take_over((local, &mut connection), asker, (&id, address), limits).await {
            Ok(()) => return Ok(Outcome::Done { to: id }),
            Err(reason) => why = format!("replica {id}: {reason}"),
        }
    }
    Ok(Outcome::Failed { why })
}

/// The first candidates, and of those the ones first whose disks are current: the others' may take a while.
async fn ready_first(
    local: &Local,
    asker: &Asker,
    candidates: Vec<(NodeId, std::net::SocketAddr)>,
    until: Instant,
) -> Vec<(NodeId, std::net::SocketAddr)> {
    let (mut ready, mut late) = (Vec::new(), Vec::new());
    for (id, address) in candidates.into_iter().take(CANDIDATES) {
        let look = async {
            let mut replica = asker.open(&id, address).await.ok()?;
            replica.info(&["persistence"]).await.ok()
        };
        let info = timeout_at(until.min(Instant::now() + LOOK), look).await;
        let is_ready = info.is_ok_and(|info| info.is_some_and(|info| behind(&info, local.logs_writes()).is_none()));
        if is_ready { ready.push((id, address)) } else { late.push((id, address)) }
    }
    ready.extend(late);
    ready
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

/// Waits until no slot of this member is half moved, for a while; gives the marks that are left.
///
/// A replica knows nothing of its primary's marks (Redis 7 and 8 keep them in the primary's own table). Promoted, it would answer that
/// the keys which have moved already do not exist, and take new ones in their place, which the end of the move then puts in place of
/// the old. So whoever moves the slot finishes it first; what is still open when time is up is marked again at the heir.
async fn await_moves(own: &mut Connection, patience: Instant) -> Result<Vec<Command>, Error> {
    let patience = patience.min(Instant::now() + MOVES);
    loop {
        let marks = marks(&own.cluster_nodes().await?);
        if marks.is_empty() || Instant::now() >= patience {
            return Ok(marks);
        }
        sleep(PATIENCE_LOOK).await;
    }
}

/// CLUSTER SETSLOT with the marks of this member's half-moved slots. Pure.
fn marks(table: &[Node]) -> Vec<Command> {
    let mine = table.iter().filter(|node| node.flags.myself);
    let set = |slot: u16, what: &str, id: &NodeId| {
        Command::new("CLUSTER").args(["SETSLOT", &slot.to_string(), what, id.as_str()])
    };
    mine.flat_map(|node| {
        let migrating = node.migrating.iter().map(|(slot, to)| set(*slot, "MIGRATING", to));
        migrating.chain(node.importing.iter().map(|(slot, from)| set(*slot, "IMPORTING", from)))
    })
    .collect()
}

async fn ask_to_take_over(
    (local, own): (&Local, &mut Connection),
    asker: &Asker,
    (id, address): (&NodeId, std::net::SocketAddr),
    limits: Limits,
) -> Result<(), String> {
    let prepared = async {
        let mut replica = asker.open(id, address).await.map_err(|error| error.to_string())?;
        await_disk(&mut replica, local.logs_writes(), limits.waits).await?;
        // The last thing before the order: a move may have begun meanwhile.
        let marks = await_moves(own, limits.waits).await.map_err(|error| error.to_string())?;
        Ok::<_, String>((replica, marks))
    };
    let prepared = timeout_at(limits.orders, prepared).await;
    let (replica, marks) = prepared.map_err(|_| "the rest of the grace period is too short for it".to_owned())??;
    order(own, replica, id, &marks).await
}

/// Gives the order and follows it until the own role has changed; whatever is slow, it is over after [`FOLLOWED`]. A replica that was told goes
/// on by itself.
async fn order(own: &mut Connection, replica: Connection, id: &NodeId, marks: &[Command]) -> Result<(), String> {
    let followed = tokio::time::timeout(FOLLOWED, follow(own, replica, id, marks)).await;
    followed
        .unwrap_or_else(|_| Err(format!("it was ordered to take over and no end of that was seen within {FOLLOWED:?}")))
}

async fn follow(own: &mut Connection, mut replica: Connection, id: &NodeId, marks: &[Command]) -> Result<(), String> {
    replica.call(&["CLUSTER", "FAILOVER"]).await.map_err(|error| error.to_string())?;
    let (began, mut won) = (Instant::now(), false);
    while began.elapsed() < TAKE_OVER {
        // It is asked first: the marks are due before its clients come.
        let theirs = replica.role().await;
        if !won && matches!(theirs, Ok(Role::Primary { .. })) {
            won = true;
            mark(&mut replica, id, marks).await;
            // Only the news has to arrive. Without the push it does, too, 40 ms later.
            let _ = bus::push(&mut replica).await;
        }
        // A reply that cannot be had now (writes are paused, reads are not) is asked for again until time is up.
        if let Ok(Role::Replica { .. }) = own.role().await {
            if !won {
                mark(&mut replica, id, marks).await;
            }
            return Ok(());
        }
        if own.is_broken() {
            return Err("the own Redis stopped answering".to_owned());
        }
        // When all members stop at once the candidate may be gone already; there is then nothing to wait for.
        if theirs.is_err() && replica.is_broken() {
            return Err("it went away before it took over".to_owned());
        }
        sleep(LOOK_AGAIN).await;
    }
    Err(format!("it did not take over within {} ms", TAKE_OVER.as_millis()))
}

/// Marks at the heir what was half moved. What cannot be marked here, the controller marks when it sees the slot's keys at two places.
async fn mark(heir: &mut Connection, id: &NodeId, marks: &[Command]) {
    for command in marks {
        if let Err(error) = heir.command(command).await {
            tracing::warn!(%id, %error, "a half-moved slot could not be marked at the new primary");
        }
    }
}

/// Waits until what a member would load after a crash is what it has in memory: until its append-only file is written anew after a
/// full synchronisation, or first after a start from a snapshot, the former files count (`AOF_WAIT_REWRITE`).
async fn await_disk(member: &mut Connection, is_wanted: bool, patience: Instant) -> Result<(), String> {
    loop {
        let info = member.info(&["persistence"]).await.map_err(|error| error.to_string())?;
        match behind(&info, is_wanted) {
            None => return Ok(()),
            Some(why) if Instant::now() >= patience => return Err(why.to_owned()),
            Some(_) => sleep(PATIENCE_LOOK).await,
        }
    }
}

/// Waits, before the own Redis is stopped, until the first append-only file is at least being written: Redis refuses SHUTDOWN then, but not
/// while that is only scheduled, as behind a child that saves.
pub async fn await_own_disk(local: &Local, until: Instant) {
    while local.logs_writes() && Instant::now() < until {
        let is_scheduled =
            info(local, &["persistence"]).await.is_ok_and(|info| info.flag("aof_rewrite_scheduled") == Some(true));
        if !is_scheduled {
            return;
        }
        sleep(PATIENCE_LOOK).await;
    }
}

/// Why its disk may hold an older data set than its memory, where every write `is_wanted` there. Pure.
pub(crate) fn behind(info: &Info, is_wanted: bool) -> Option<&'static str> {
    match info.append_only_file() {
        AppendOnlyFile::Current => None,
        AppendOnlyFile::Rewriting => {
            Some("its append-only file is being written anew, and a restart would load an older data set")
        }
        AppendOnlyFile::Off => is_wanted
            .then_some("its append-only file is not switched on yet, and a restart would load an older data set"),
    }
}

/// Replicas that may take over: known members whose stream is up to date, furthest first. Pure.
fn successors(table: &[Node], attached: &[ReplicaLine]) -> Vec<(NodeId, std::net::SocketAddr)> {
    let mut fit: Vec<&ReplicaLine> =
        attached.iter().filter(|line| line.state == "online" && (0..=LAG_SECONDS).contains(&line.lag)).collect();
    fit.sort_by_key(|line| std::cmp::Reverse(line.offset));
    fit.iter()
        .filter_map(|line| {
            // A backup's reader also shows up as a replica; it has no port and is in no table.
            let address = std::net::SocketAddr::new(line.host.parse().ok()?, line.port);
            let node = table.iter().find(|node| node.address == Some(address) && node.flags.replica)?;
            (!node.flags.failed).then(|| (node.id.clone(), address))
        })
        .collect()
}

/// What it holds may be nowhere else; keys that could not be counted count. Pure.
#[must_use]
pub fn may_be_last(outcome: &Outcome, keys: Option<i64>) -> bool {
    match outcome {
        Outcome::Failed { .. } => keys != Some(0),
        Outcome::NotNeeded | Outcome::Done { .. } => false,
    }
}

/// How to shut down. Pure.
///
/// With an append-only file (`logged`: it is switched on) everything is written and synced anyway. With save points Redis saves. A member that keeps
/// nothing on disk saves only when it goes away as the holder of keys that no replica has taken over.
#[must_use]
pub fn shutdown_mode(config: &AgentConfig, outcome: &Outcome, keys: Option<i64>, logged: bool) -> &'static str {
    let last_holder = may_be_last(outcome, keys);
    match config.append_only {
        AppendOnly::EverySec | AppendOnly::Always if logged => "NOSAVE",
        AppendOnly::EverySec | AppendOnly::Always => "SAVE",
        AppendOnly::Off if !config.snapshots.is_empty() || last_holder => "SAVE",
        AppendOnly::Off => "NOSAVE",
    }
}

/// Sends SHUTDOWN. Success is a connection that ends without a reply.
///
/// # Errors
/// When Redis refuses (it cannot save, or its append-only file is written for the first time), or does not answer within `limit`: a
/// large data set takes longer to be saved.
pub async fn shut_down(local: &Local, mode: &str, limit: Duration) -> Result<(), Error> {
    let mut connection = local.open(limit).await?;
    match connection.command(&Command::new("SHUTDOWN").arg(mode)).await {
        Err(Error::Io { .. }) | Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the own Redis writes its append-only file.
pub async fn logs(local: &Local) -> bool {
    info(local, &["persistence"]).await.is_ok_and(|info| info.flag("aof_enabled") == Some(true))
}

/// Keys of the own Redis; `None`: it does not say.
pub async fn keys(local: &Local) -> Option<i64> {
    let replies = local.ask(&[Command::new("DBSIZE")]).await;
    replies.ok().and_then(|replies| replies.first().and_then(Reply::integer))
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

    use types::cluster::SavePoint;

    use super::*;

    fn line(last: u8, state: &str, offset: i64, lag: i64) -> ReplicaLine {
        ReplicaLine { host: format!("127.84.0.{last}"), port: 6379, state: state.into(), offset, lag }
    }

    fn table() -> Vec<Node> {
        resp::nodes::parse(&format!(
            "{:040x} 127.84.0.1:6379@16379 myself,master - 0 0 3 connected 0-5460\n\
             {:040x} 127.84.0.2:6379@16379 slave {:040x} 0 1 3 connected\n\
             {:040x} 127.84.0.3:6379@16379 slave {:040x} 0 1 3 connected\n\
             {:040x} 127.84.0.4:6379@16379 slave,fail {:040x} 0 1 3 connected\n",
            1, 2, 1, 3, 1, 4, 1
        ))
        .unwrap()
    }

    fn order(attached: &[ReplicaLine]) -> Vec<String> {
        successors(&table(), attached).into_iter().map(|(_, address)| address.ip().to_string()).collect()
    }

    #[test]
    fn what_follows_the_last_order_is_over_before_redis_must_be_stopped() {
        let began = Instant::now();
        let of = |seconds: u64| {
            let limits = Limits::new(began, began + Duration::from_secs(seconds));
            [limits.waits - began, limits.orders - began].map(|limit| limit.as_secs_f64())
        };
        // With a grace period of 30 s Redis must be stopped after 23.
        assert_eq!([of(23), of(60), of(3600), of(5)], [[6.0, 13.0], [15.0, 50.0], [600.0, 3590.0], [6.0, 0.0]]);
    }

    #[test]
    fn the_furthest_replica_in_sync_comes_first_and_others_never() {
        assert_eq!(order(&[line(2, "online", 10, 0), line(3, "online", 11, 1)]), ["127.84.0.3", "127.84.0.2"]);
        assert_eq!(order(&[line(2, "wait_bgsave", 10, 0), line(3, "online", 11, 3)]), [""; 0]);
        assert_eq!(order(&[line(4, "online", 10, 0), line(9, "online", 10, 0)]), [""; 0]);
        let reader = ReplicaLine { port: 0, ..line(2, "online", 99, 0) };
        assert_eq!(order(&[reader]), [""; 0]);
    }

    #[test]
    fn a_role_goes_only_where_a_restart_would_find_the_data() {
        let aof = |enabled: u8, running: u8, is_wanted: bool| {
            let info = Info::parse(&format!("aof_enabled:{enabled}\naof_rewrite_in_progress:{running}\n"));
            behind(&info, is_wanted).is_some()
        };
        let found = [aof(1, 0, true), aof(0, 0, false), aof(0, 0, true), aof(1, 1, true), aof(1, 1, false)];
        assert_eq!(found, [false, false, true, true, true]);
    }

    #[test]
    fn whoever_has_slots_or_gets_the_first_has_a_role_to_hand_over() {
        let outcome = |line: &str, link: &str| {
            let table = resp::nodes::parse(&format!("{:040x} 127.84.0.1:6379@16379 myself,{line}\n", 1)).unwrap();
            without_role(&table, &Info::parse(&format!("master_link_status:{link}\n")))
        };
        let (primary, replica) = ("master - 0 0 3 connected", format!("slave {:040x} 0 0 3 connected", 2));
        assert_eq!(outcome(&format!("{primary} 0-5"), "up"), None);
        assert_eq!(outcome(&format!("{primary} [7-<-{:040x}]", 2), "up"), None);
        assert_eq!(outcome(&replica, "up"), Some(Outcome::NotNeeded));
        assert!(matches!(outcome(&replica, "down"), Some(Outcome::Failed { .. })));
        assert!(matches!(outcome(primary, "up"), Some(Outcome::Failed { .. })));
    }

    #[test]
    fn marks_of_half_moved_slots_are_set_again_as_they_are() {
        let me = format!("{:040x} 127.84.0.1:6379@16379 myself,master - 0 0 3 connected 0-5460", 1);
        let table = resp::nodes::parse(&format!("{me} [93->-{:040x}] [7000-<-{:040x}]\n", 2, 3)).unwrap();
        let set = |slot: &str, what: &str, id: u8| {
            Command::new("CLUSTER").args(["SETSLOT", slot, what, &format!("{id:040x}")])
        };
        assert_eq!(marks(&table), [set("93", "MIGRATING", 2), set("7000", "IMPORTING", 3)]);
        assert_eq!(marks(&super::tests::table()), []);
    }

    #[test]
    fn shutdown_saves_where_saving_was_asked_for_or_nobody_else_has_the_keys() {
        let mut config = crate::config::fixture::config();
        let failed = Outcome::Failed { why: String::new() };
        let done = Outcome::Done { to: table()[1].id.clone() };
        assert_eq!(shutdown_mode(&config, &failed, Some(5), true), "NOSAVE");
        assert_eq!(shutdown_mode(&config, &failed, Some(5), false), "SAVE");
        config.append_only = AppendOnly::Off;
        assert_eq!(shutdown_mode(&config, &failed, Some(5), true), "SAVE");
        assert_eq!(shutdown_mode(&config, &failed, None, true), "SAVE");
        assert_eq!(shutdown_mode(&config, &failed, Some(0), true), "NOSAVE");
        assert_eq!(shutdown_mode(&config, &done, Some(5), true), "NOSAVE");
        assert_eq!(shutdown_mode(&config, &Outcome::NotNeeded, Some(5), true), "NOSAVE");
        config.snapshots = vec![SavePoint { seconds: 1, changes: 1 }];
        assert_eq!(shutdown_mode(&config, &done, Some(5), true), "SAVE");
    }
}
