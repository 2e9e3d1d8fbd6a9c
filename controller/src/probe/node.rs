//! One Redis server: what is asked, and what the answers mean.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use plan::{Disk, Health, Node, NodeId, Open, Peer, PeerRole, Role, SlotSet, Stands, Unwritten};
use resp::{AppendOnlyFile, ClusterInfo, Command, Connection, Info, Reply, Vendor, nodes};
use types::cluster::Mode;
use types::engine::Engine;

use super::stream::Streams;
use super::{Place, Question};
use crate::redis::{self, Error};

/// Between the start of a process, in whole seconds, and the pongs it makes up for the nodes of its file.
const START_MILLIS: i64 = 2_000;

/// What a node says beyond what the planner reads.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Facts {
    /// Where it is.
    pub address: SocketAddr,
    /// Which of its processes it is.
    pub run_id: String,
    /// What it is.
    pub engine: Engine,
    /// Its own version.
    pub version: String,
    /// Its replication ID.
    pub replication_id: String,
    /// The one that it has gone on from, as a primary.
    pub former: Option<FormerStream>,
    /// Its replication offset; 0: not known.
    pub offset: u64,
    /// It says `role:slave`: its offset is one of the stream of its primary, and of no writes of its own.
    pub is_slave: bool,
    /// A synchronisation with its primary runs.
    pub syncing: bool,
    /// maxmemory; 0: unlimited.
    pub max_memory: u64,
    /// What counts towards it, in bytes: more than the data set, since what finds small keys may be larger than they are.
    pub used_memory: u64,
    /// Whether values are compressed in snapshots and in MIGRATE.
    pub compresses: bool,
    /// What it could not write to its disk, wherefore Redis takes no writes.
    pub persistence_failed: Option<Unkept>,
    /// Where it is by its own table, which it tells its clients.
    pub own_line: Option<SocketAddr>,
    /// Its table and its replication disagree whether it is a replica.
    pub at_odds: bool,
    /// The user's parameters that it shows otherwise than they are wanted, with what it shows.
    pub unlike: BTreeMap<String, String>,
}

/// What a node could not write to its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unkept {
    /// Its append-only file.
    Log,
    /// Its last snapshot, be it for the disk or because a fork found no memory: Redis does not say which.
    Snapshot,
}

/// What a node answered, before it is compared with the others.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    /// Its identity, asked on the same connection as everything else.
    pub(super) id: NodeId,
    /// Beyond what the planner reads.
    pub(super) facts: Facts,
    info: Info,
    /// Its table and its view of the whole; none in Standalone.
    cluster: Option<(Vec<nodes::Node>, ClusterInfo)>,
    node_timeout_millis: u64,
    disk: Disk,
    /// What its agent says of its copy.
    pub(super) vouched: Vouched,
}

/// What an agent says of a copy. Redis tells since when it knows of that; the agent, until when the copy had
/// everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Vouched {
    /// It was not asked, did not answer, or is of an earlier release.
    #[default]
    Not,
    /// Since it started, or since the copy was begun, it has not been seen to have everything.
    Never,
    /// So many milliseconds ago it had everything.
    Millis(u64),
}

impl Raw {
    /// `is_compared`: the controller has seen how far its primary was, without which nobody could say how many bytes it lacks; or the copy
    /// stands back because another node has its primary's address, and might be elected otherwise by what its agent has seen alone.
    fn stands(&self, is_compared: bool) -> Stands {
        match (self.is_forbidden(), self.vouched) {
            (false, _) => Stands::ByItself,
            (true, Vouched::Millis(_)) if is_compared => Stands::OnOrder,
            (true, Vouched::Millis(_) | Vouched::Never | Vouched::Not) => Stands::Never,
        }
    }

    /// As a replica it may not stand for election: its agent does not know that its copy is whole.
    pub(super) fn is_forbidden(&self) -> bool {
        self.myself().is_some_and(|line| line.primary.is_some() && line.flags.no_failover)
    }

    fn myself(&self) -> Option<&nodes::Node> {
        self.cluster.as_ref().and_then(|(table, _)| table.iter().find(|node| node.flags.myself))
    }

    /// Whom it follows.
    pub(super) fn follows(&self) -> Option<NodeId> {
        NodeId::parse(self.myself()?.primary.as_ref()?.as_str())
    }

    /// A primary to which no replica has come yet, or for so long none that it gave its backlog up.
    pub(super) fn begins_a_stream(&self) -> bool {
        self.info.get("role") == Some("master") && self.info.flag("repl_backlog_active") == Some(false)
    }

    /// The address it replicates from.
    pub(super) fn source(&self) -> Option<IpAddr> {
        self.info.get("master_host").and_then(|host| host.parse().ok())
    }

    /// How long ago the others last answered it on the cluster bus, by its own clock. Who never did is not listed.
    pub(super) fn pong_ages(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let now = self.info.number("server_time_usec").map(|micros| micros / 1_000);
        let up = self.info.number("uptime_in_seconds").map_or(i64::MAX, |seconds| seconds.saturating_mul(1_000));
        let table = self.cluster.iter().flat_map(|(table, _)| table).filter(|line| line.pong_received > 0);
        table.filter_map(move |line| {
            let age = now?.saturating_sub(line.pong_received).max(0);
            // A process that starts takes everybody for heard of just now (`clusterLoadConfig`).
            let is_told = age.saturating_add(START_MILLIS) >= up;
            Some((NodeId::parse(line.id.as_str())?, u64::try_from(age).ok().filter(|_| !is_told)?))
        })
    }

    /// How long ago it lost the link to its primary; `None`: it is up, or never was since the process started.
    pub(super) fn link_lost_millis(&self) -> Option<u64> {
        let is_down = self.info.get("master_link_status") == Some("down");
        let seconds = self.info.number("master_link_down_since_seconds").filter(|_| is_down)?;
        u64::try_from(seconds).ok().map(|seconds| seconds.saturating_mul(1_000))
    }
}

/// What a restart would load of what is in memory. An append-only file that could not be switched on (`logs`: it should be) does not count; where
/// there is to be none, what counts is whether its stop can be expected to save a snapshot.
pub(crate) fn disk(info: &Info, logs: bool) -> Disk {
    match info.append_only_file() {
        AppendOnlyFile::Off if logs => Disk::Rewriting,
        AppendOnlyFile::Off if lacks_a_snapshot(info) => Disk::Fails(Unwritten::Snapshot),
        AppendOnlyFile::Off | AppendOnlyFile::Current => Disk::Current,
        AppendOnlyFile::Rewriting => Disk::Rewriting,
        AppendOnlyFile::Failed if info.get("aof_last_write_status") == Some("err") => Disk::Fails(Unwritten::Write),
        AppendOnlyFile::Failed => Disk::Fails(Unwritten::Rewrite),
    }
}

/// The last snapshot failed, and something has been written since one that did not: Redis counts on from there (`server.dirty`).
fn lacks_a_snapshot(info: &Info) -> bool {
    info.get("rdb_last_bgsave_status") == Some("err") && info.number("rdb_changes_since_last_save") != Some(0)
}

/// Asks one node everything, in one pipeline.
pub(super) async fn ask(
    question: Question<'_>,
    address: SocketAddr,
    place: &Place,
    patience: Duration,
) -> Result<Raw, Error> {
    let mut connection = question.access.open_within(address, patience).await?;
    match question.mode {
        Mode::Cluster => ask_member(&mut connection, question).await,
        Mode::Standalone => ask_standalone(&mut connection, question, place).await,
    }
}

fn config_get(parameter: &str) -> Command {
    Command::new("CONFIG").args(["GET", parameter])
}

/// What [`facts`] and [`unlike`] read beside INFO. Parameters one by one, because versions before 7.0 take only one.
fn facts_commands(wanted: &BTreeMap<String, String>) -> Vec<Command> {
    let one_by_one = ["maxmemory", "rdbcompression", "save", "stop-writes-on-bgsave-error"].map(config_get);
    let all = (!wanted.is_empty()).then(|| Command::new("CONFIG").arg("GET").args(wanted.keys()));
    one_by_one.into_iter().chain(all).collect()
}

/// A parameter counts as applied when the server shows it. What it does not list has no effect on it.
fn unlike(wanted: &BTreeMap<String, String>, shown: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let differs = wanted.iter().filter_map(|(name, value)| {
        let found = shown.get(name)?;
        (!types::config::shows(name, value, found)).then(|| (name.clone(), found.clone()))
    });
    differs.collect()
}

/// Sections of INFO that are read.
const SECTIONS: [&str; 5] = ["server", "memory", "persistence", "replication", "keyspace"];

async fn ask_member(connection: &mut Connection, question: Question<'_>) -> Result<Raw, Error> {
    let mut commands = vec![
        Command::new("CLUSTER").arg("MYID"),
        Command::new("CLUSTER").arg("NODES"),
        Command::new("CLUSTER").arg("INFO"),
        Command::new("INFO").args(SECTIONS),
        config_get("cluster-node-timeout"),
    ];
    commands.extend(facts_commands(question.parameters));
    let address = connection.address();
    let replies = redis::all(connection, &commands).await?;
    let wrong = |what: &'static str| move |why: String| Error::Answer { what, address, why };
    let [id, table, view, info, configs @ ..] = replies.as_slice() else {
        return Err(wrong("a pipeline")("too few answers".to_owned()));
    };
    let id = NodeId::parse(id.text().unwrap_or_default())
        .ok_or_else(|| wrong("CLUSTER MYID")("it is no node ID".to_owned()))?;
    let table = nodes::parse(table.text().unwrap_or_default()).map_err(|e| wrong("CLUSTER NODES")(e.to_string()))?;
    let view = ClusterInfo::parse(view.text().unwrap_or_default()).map_err(|e| wrong("CLUSTER INFO")(e.to_string()))?;
    let info = Info::parse(info.text().unwrap_or_default());
    let config = configs_of(configs, address)?;
    let node_timeout_millis = config.get("cluster-node-timeout").and_then(|v| v.parse().ok()).unwrap_or(0);
    let disk = disk(&info, question.logs);
    let facts = member_facts(facts(address, &info, &config), &info, &table);
    let facts = Facts { unlike: unlike(question.parameters, &config), ..facts };
    let cluster = Some((table, view));
    Ok(Raw { id, facts, info, cluster, node_timeout_millis, disk, vouched: Vouched::Not })
}

async fn ask_standalone(connection: &mut Connection, question: Question<'_>, place: &Place) -> Result<Raw, Error> {
    let mut commands = vec![Command::new("INFO").args(SECTIONS)];
    commands.extend(facts_commands(question.parameters));
    let address = connection.address();
    let replies = redis::all(connection, &commands).await?;
    let [info, configs @ ..] = replies.as_slice() else {
        return Err(Error::Answer { what: "INFO", address, why: "too few answers".to_owned() });
    };
    let info = Info::parse(info.text().unwrap_or_default());
    let config = configs_of(configs, address)?;
    let raw = standalone(address, place, (info, &config), question.logs);
    Ok(Raw { facts: Facts { unlike: unlike(question.parameters, &config), ..raw.facts }, ..raw })
}

/// What a server without a cluster is.
fn standalone(
    address: SocketAddr,
    place: &Place,
    (info, config): (Info, &BTreeMap<String, String>),
    logs: bool,
) -> Raw {
    let (facts, disk, id) = (facts(address, &info, config), disk(&info, logs), standalone_id(place));
    Raw { id, facts, info, cluster: None, node_timeout_millis: 0, disk, vouched: Vouched::Not }
}

/// A server without a cluster has no node ID; its pod's uid stands for it.
fn standalone_id(place: &Place) -> NodeId {
    let uid = place.uid.as_deref().unwrap_or(&place.name);
    let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, uid.as_bytes());
    let mut bytes = [0; 20];
    bytes.iter_mut().zip(sum.as_ref()).for_each(|(byte, from)| *byte = *from);
    NodeId::from_bytes(bytes)
}

fn configs_of(replies: &[Reply], address: SocketAddr) -> Result<BTreeMap<String, String>, Error> {
    let mut all = BTreeMap::new();
    for reply in replies {
        let some = resp::reply::config_get(reply);
        all.extend(some.map_err(|error| Error::Answer { what: "CONFIG GET", address, why: error.to_string() })?);
    }
    Ok(all)
}

/// How far its copy has come. One that connects to no primary, as it knows no address of it, says that it is none's replica. One that has neither a link
/// nor the remains of one, as while it is sent everything, says 1, which stands for what it does not know (`genRedisInfoString`).
pub(crate) fn offset(info: &Info) -> Option<u64> {
    let is_replica = info.get("role") != Some("master");
    let offset = info.number(if is_replica { "slave_repl_offset" } else { "master_repl_offset" })?;
    u64::try_from(offset).ok().filter(|offset| !is_replica || *offset > 1)
}

fn facts(address: SocketAddr, info: &Info, config: &BTreeMap<String, String>) -> Facts {
    Facts {
        address,
        run_id: info.get("run_id").unwrap_or_default().to_owned(),
        engine: engine(info),
        version: info.version().unwrap_or_default().to_owned(),
        replication_id: info.get("master_replid").unwrap_or_default().to_owned(),
        former: former_stream(info),
        offset: offset(info).unwrap_or(0),
        is_slave: info.get("role") == Some("slave"),
        syncing: info.flag("master_sync_in_progress").unwrap_or(false),
        max_memory: config.get("maxmemory").and_then(|v| v.parse().ok()).unwrap_or(0),
        used_memory: counted(info).unwrap_or(0),
        compresses: config.get("rdbcompression").is_none_or(|v| v == "yes"),
        persistence_failed: persistence_failed(info, config),
        own_line: None,
        at_odds: false,
        unlike: BTreeMap::new(),
    }
}

/// The stream of which a primary was a replica until it took over; since 7.0 also the one of the snapshot that it has loaded
/// (`master_replid2`, `second_repl_offset`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FormerStream {
    /// Its replication ID.
    pub id: String,
    /// The first offset of it that the primary has not.
    pub end: u64,
}

impl FormerStream {
    /// Whether a replica of this stream that has come so far has nothing which the primary has not.
    #[must_use]
    pub fn holds_all_of(&self, stream: &str, offset: u64) -> bool {
        self.id == stream && offset < self.end
    }
}

/// Redis shows zeros and -1 where there is none (`clearReplicationId2`).
pub(crate) fn former_stream(info: &Info) -> Option<FormerStream> {
    let is_id = |id: &&str| id.bytes().any(|digit| digit != b'0');
    let id = info.get("master_replid2").filter(is_id).filter(|_| info.get("role") == Some("master"))?;
    let end = info.number("second_repl_offset").and_then(|end| u64::try_from(end).ok())?;
    Some(FormerStream { id: id.to_owned(), end })
}

/// Why Redis takes no writes (`writeCommandsDeniedByDiskError`): the append-only file could not be written, or the last snapshot of those that are
/// configured failed and `stop-writes-on-bgsave-error` is on. A primary answers them with MISCONF; a replica panics at the next one it is sent
/// (from 7.0 on, `replica-ignore-disk-write-errors`).
fn persistence_failed(info: &Info, config: &BTreeMap<String, String>) -> Option<Unkept> {
    let fails = |field: &str| info.get(field) == Some("err");
    let saves = config.get("save").is_some_and(|points| !points.is_empty());
    let stops = config.get("stop-writes-on-bgsave-error").is_none_or(|value| value == "yes");
    if info.flag("aof_enabled") == Some(true) && fails("aof_last_write_status") {
        return Some(Unkept::Log);
    }
    (saves && stops && fails("rdb_last_bgsave_status")).then_some(Unkept::Snapshot)
}

/// With what its own line of its table adds.
fn member_facts(facts: Facts, info: &Info, table: &[nodes::Node]) -> Facts {
    let myself = table.iter().find(|line| line.flags.myself);
    Facts {
        own_line: myself.and_then(|line| line.address),
        at_odds: myself.is_some_and(|line| is_at_odds(info, line) && !follows_nowhere(line, table)),
        ..facts
    }
}

/// Redis connects to no primary whose address it does not know: it copies nobody, and there is nothing that a restart would mend.
fn follows_nowhere(myself: &nodes::Node, table: &[nodes::Node]) -> bool {
    let primary = table.iter().find(|line| Some(&line.id) == myself.primary.as_ref());
    primary.is_some_and(|line| line.flags.no_address)
}

/// A process that has just read its table follows nobody for the tenth of a second until it looks after its replication; one that still
/// does so later takes part in elections as a replica and copies nobody, or the other way round.
fn is_at_odds(info: &Info, myself: &nodes::Node) -> bool {
    const STARTED_SECONDS: i64 = 2;
    let plays = info.get("role").map(|role| role == "slave");
    let is_settled = info.number("uptime_in_seconds").is_some_and(|seconds| seconds > STARTED_SECONDS);
    is_settled && plays.is_some_and(|plays| plays != myself.primary.is_some())
}

fn engine(info: &Info) -> Engine {
    match info.vendor() {
        Vendor::Redis => Engine::Redis,
        Vendor::Valkey => Engine::Valkey,
    }
}

fn unsigned(number: Option<i64>) -> u64 {
    number.and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

/// The node as the planner reads it.
pub(super) fn read(raw: &Raw, streams: &Streams, now: Instant) -> Node {
    let myself = raw.myself();
    let role = match raw.follows() {
        Some(of) => replica(raw, of, streams, now),
        None => Role::Primary { slots: myself.map(slots).unwrap_or_default() },
    };
    Node {
        id: raw.id,
        address: raw.facts.address.to_string(),
        role,
        open: myself.map(open).unwrap_or_default(),
        foreign_keys: BTreeMap::new(),
        uncounted: SlotSet::EMPTY,
        compared: BTreeMap::new(),
        leaving: BTreeMap::new(),
        keys: u64::try_from(raw.info.keys()).unwrap_or(0),
        bytes: unsigned(raw.info.number("used_memory_dataset")),
        room: room(&raw.info),
        epoch: myself.map_or(0, |me| me.config_epoch),
        current_epoch: raw.cluster.as_ref().map_or(0, |(_, view)| view.current_epoch),
        state_ok: raw.cluster.as_ref().is_none_or(|(_, view)| view.ok),
        loading: raw.info.flag("loading").unwrap_or(false),
        disk: raw.disk,
        node_timeout_millis: raw.node_timeout_millis,
        peers: raw.cluster.iter().flat_map(|(table, _)| table).filter_map(peer).collect(),
    }
}

/// What maxmemory bounds, as Redis counts it (`getMaxmemoryState`).
fn counted(info: &Info) -> Option<u64> {
    let not_counted = info.number("mem_not_counted_for_evict").unwrap_or(0);
    let used = info.number("used_memory")?;
    Some(unsigned(Some(used.saturating_sub(not_counted))))
}

/// With another policy it may evict, and how much that would bring nobody knows.
fn room(info: &Info) -> Option<u64> {
    let most = info.number("maxmemory").filter(|most| *most > 0)?;
    let refuses = info.get("maxmemory_policy") == Some("noeviction");
    let used = counted(info)?;
    refuses.then(|| unsigned(Some(most)).saturating_sub(used))
}

/// Synced: its first synchronisation has finished and none runs. While the link is up Redis says so; while it is down
/// the copy is complete if its link was up since this process started (a copy read from disk may be old: Redis counts
/// seconds since the link went down only if it was up), and its replication ID is the one its primary had, which it
/// takes over only at the end of a synchronisation.
fn replica(raw: &Raw, of: NodeId, streams: &Streams, now: Instant) -> Role {
    let link_up = raw.info.get("master_link_status") == Some("up");
    let was_up = raw.info.number("master_link_down_since_seconds").is_some_and(|seconds| seconds >= 0);
    let was_synced = was_up && streams.is_of_stream(raw, of);
    let mut table = raw.cluster.iter().flat_map(|(table, _)| table);
    let line = table.find(|node| NodeId::parse(node.id.as_str()) == Some(of));
    Role::Replica {
        of,
        synced: !raw.facts.syncing && (link_up || was_synced),
        link_up,
        misled: is_misled(&raw.info, line),
        offset: raw.facts.offset,
        lag_bytes: streams.lag(raw, of),
        gap: streams.gap(raw, of, now),
        stands: raw.stands(streams.has_seen(of) || line.is_some_and(|line| line.flags.no_address)),
    }
}

/// Whether its replication connects to another address than its table's line about its primary says. What is not
/// legible misleads nobody.
pub(crate) fn is_misled(info: &Info, primary: Option<&nodes::Node>) -> bool {
    let connects: Option<IpAddr> = info.get("master_host").and_then(|host| host.parse().ok());
    let placed = primary.and_then(|line| line.address).map(|address| address.ip());
    connects.zip(placed).is_some_and(|(connects, placed)| connects != placed)
}

fn slots(node: &nodes::Node) -> SlotSet {
    let mut slots = SlotSet::EMPTY;
    node.slots.iter().for_each(|range| slots.insert_range(range.first, range.last));
    slots
}

fn open(myself: &nodes::Node) -> BTreeMap<u16, Open> {
    let id = |node: &nodes::NodeId| NodeId::parse(node.as_str());
    let migrating = myself.migrating.iter().filter_map(|(slot, to)| Some((*slot, Open::Migrating(id(to)?))));
    let importing = myself.importing.iter().filter_map(|(slot, from)| Some((*slot, Open::Importing(id(from)?))));
    migrating.chain(importing).collect()
}

/// A line about somebody else; `None`: it is the node's own, or no line at all.
pub(crate) fn peer(node: &nodes::Node) -> Option<(NodeId, Peer)> {
    if node.flags.myself {
        return None;
    }
    let id = NodeId::parse(node.id.as_str())?;
    let role = match node.primary.as_ref().and_then(|id| NodeId::parse(id.as_str())) {
        Some(of) => PeerRole::Replica { of },
        None => PeerRole::Primary { slots: slots(node) },
    };
    let health = if node.flags.failed {
        Health::Failed
    } else if node.flags.suspected {
        Health::Suspect
    } else {
        Health::Ok
    };
    let peer = Peer {
        address: node.address.map(|address| address.to_string()).unwrap_or_default(),
        role,
        health,
        connected: node.connected,
        handshake: node.flags.handshake,
        noaddr: node.flags.no_address,
        epoch: node.config_epoch,
    };
    Some((id, peer))
}

/// What a node says whose table and INFO are these.
#[cfg(test)]
pub(super) fn raw(id: NodeId, info: &str, table: &str) -> Raw {
    let info = Info::parse(info);
    let facts = facts(SocketAddr::from(([10, 0, 0, 1], 6379)), &info, &BTreeMap::new());
    let view = ClusterInfo {
        ok: true,
        slots_assigned: 16384,
        slots_ok: 16384,
        slots_suspected: 0,
        slots_failed: 0,
        known_nodes: 3,
        size: 1,
        current_epoch: 1,
        my_epoch: 1,
    };
    let table = nodes::parse(table).unwrap_or_default();
    let facts = member_facts(facts, &info, &table);
    let cluster = Some((table, view));
    Raw { id, facts, info, cluster, node_timeout_millis: 5_000, disk: Disk::Current, vouched: Vouched::Not }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_fails_is_told_from_one_that_is_written() {
        let [writes, rewrite] = ["aof_last_write_status:err\r\n", "aof_last_bgrewrite_status:err\r\n"];
        let runs = "aof_rewrite_in_progress:1\r\n";
        let says = |logs, text: &[&str]| disk(&Info::parse(&format!("aof_enabled:1\r\n{}", text.concat())), logs);
        assert_eq!([says(true, &[]), says(true, &[rewrite])], [Disk::Current; 2], "the former file takes writes");
        assert_eq!(says(true, &[runs]), Disk::Rewriting);
        assert_eq!(says(true, &[runs, rewrite]), Disk::Fails(Unwritten::Rewrite));
        assert_eq!(says(true, &[runs, rewrite, writes]), Disk::Fails(Unwritten::Write));
        let off = Info::parse("aof_enabled:0\r\naof_last_write_status:err\r\n");
        assert_eq!([disk(&off, true), disk(&off, false)], [Disk::Rewriting, Disk::Current]);
        // Beside an append-only file nobody needs a snapshot.
        let unsaved = "rdb_last_bgsave_status:err\r\n";
        assert_eq!(says(true, &[unsaved]), Disk::Current);
        let off = Info::parse(&format!("aof_enabled:0\r\n{unsaved}"));
        let told = [disk(&off, true), disk(&off, false)];
        assert_eq!(told, [Disk::Rewriting, Disk::Fails(Unwritten::Snapshot)]);
    }

    /// Before, it counted as current, whatever the server said.
    #[test]
    fn the_disk_of_a_standalone_server_is_what_it_says() {
        let place = super::super::place::place("orders-0-0".to_owned(), None, None, &BTreeMap::new());
        let address = SocketAddr::from(([10, 0, 0, 1], 6379));
        let seen = |info: &str, logs| {
            let raw = standalone(address, &place, (Info::parse(info), &BTreeMap::new()), logs);
            read(&raw, &Streams::default(), Instant::now()).disk
        };
        let table = [
            ("aof_enabled:1\r\n", true, Disk::Current),
            ("aof_enabled:1\r\naof_last_write_status:err\r\n", true, Disk::Fails(Unwritten::Write)),
            ("aof_enabled:1\r\naof_rewrite_in_progress:1\r\n", true, Disk::Rewriting),
            ("aof_enabled:0\r\n", true, Disk::Rewriting),
            ("aof_enabled:0\r\n", false, Disk::Current),
            ("aof_enabled:0\r\nrdb_last_bgsave_status:err\r\n", false, Disk::Fails(Unwritten::Snapshot)),
            (
                "aof_enabled:0\r\nrdb_last_bgsave_status:err\r\nrdb_changes_since_last_save:1\r\n",
                false,
                Disk::Fails(Unwritten::Snapshot),
            ),
            ("aof_enabled:0\r\nrdb_last_bgsave_status:err\r\nrdb_changes_since_last_save:0\r\n", false, Disk::Current),
        ];
        for (info, logs, expected) in table {
            assert_eq!(seen(info, logs), expected, "{info}");
        }
    }

    /// Before, it was the data set: of small keys half of what they take, and `maxmemory` was let go below the whole.
    #[test]
    fn memory_in_use_is_what_maxmemory_bounds_and_not_the_data_set() {
        let info = "used_memory:2400\r\nused_memory_dataset:1000\r\nmem_not_counted_for_evict:100\r\nmaxmemory:3000\r\n\
                    maxmemory_policy:noeviction\r\n";
        let address = SocketAddr::from(([10, 0, 0, 1], 6379));
        let info = Info::parse(info);
        assert_eq!((facts(address, &info, &BTreeMap::new()).used_memory, room(&info)), (2300, Some(700)));
    }

    #[test]
    fn writes_are_refused_where_what_is_kept_could_not_be_written() {
        let refuses = |info: &str, config: &[(&str, &str)]| {
            let config = config.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            persistence_failed(&Info::parse(info), &config)
        };
        let log = |on: u8, status: &str| {
            refuses(&format!("aof_enabled:{on}\r\naof_last_write_status:{status}\r\n"), &[("save", "")])
        };
        assert_eq!([log(1, "err"), log(1, "ok"), log(0, "err")], [Some(Unkept::Log), None, None]);
        let snapshot = |save, stops| {
            refuses("rdb_last_bgsave_status:err\r\n", &[("save", save), ("stop-writes-on-bgsave-error", stops)])
        };
        let told = [snapshot("3600 1", "yes"), snapshot("", "yes"), snapshot("3600 1", "no")];
        assert_eq!(told, [Some(Unkept::Snapshot), None, None]);
    }
}
