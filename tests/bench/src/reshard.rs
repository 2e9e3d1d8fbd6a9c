//! Moving 1,000 slots between two primaries: the controller's own migration beside `redis-cli --cluster reshard` with its
//! defaults, on the same two servers, in turns, both without other load; then our move again, with a prober that uses the
//! moving slots all the time.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use controller::{
    execute::migrate::{Bucket, End, Move, migrate},
    lease::Guard,
    redis::Access,
    resolve::Moving,
};
use plan::{NodeId, SlotSet};
use resp::{ClusterClient, Command, Connection, Options, Outcome, slot::key_slot};
use types::engine::Engine;

use crate::{
    redis::{self, Nodes},
    report::{Better, Line, Pairs, Report, median, percentile},
};

/// Slots of one move.
const SLOTS: usize = 1000;
/// Keys of each slot, on average: a gigabyte or so on each primary.
const DENSE: usize = 200;
/// The same for a small data set, where the round trips of each slot weigh more. No bar: it shows what the dense figure hides.
const SPARSE: usize = 20;
/// Pairs of moves, ours and redis-cli's in turn.
const PAIRS: usize = 3;
const PASSWORD: &str = "bench";

/// Measures both value sizes.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    for (net, bytes, keys_per_slot) in [(74, 100, DENSE), (75, 1024, DENSE), (76, 100, SPARSE), (77, 1024, SPARSE)] {
        pairs(report, net, Load { bytes, keys_per_slot }).await?;
    }
    Ok(())
}

/// What is moved.
#[derive(Clone, Copy)]
struct Load {
    /// Size of a value.
    bytes: usize,
    keys_per_slot: usize,
}

async fn pairs(report: &mut Report, net: u8, load: Load) -> Result<()> {
    let user = ["--user", "kun-operator", "on", ">bench", "~*", "&*", "+@all"];
    let nodes = Nodes::start(net, 2, &user).await?;
    let [from, to] = nodes.addresses[..] else { anyhow::bail!("two nodes") };
    join(from, to).await?;
    let filled = load.fill(from).await?;
    let (mut ours, mut theirs, mut probed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut probes, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let slots = highest_slots(from).await?;
        ours.push(rate(to, move_as_controller(from, to, &slots)).await?);
        theirs.push(rate(to, reshard(from, to)).await?);

        let slots = highest_slots(from).await?;
        let prober = Prober::start(vec![from, to], some_of(&filled, &slots));
        probed.push(rate(to, move_as_controller(from, to, &slots)).await?);
        let (millis, errors) = prober.stop().await?;
        probes.extend(millis);
        refused.extend(errors);
    }
    let Load { bytes, keys_per_slot } = load;
    let pairs = Pairs {
        name: format!("move {SLOTS} slots of {keys_per_slot} values of {bytes} B"),
        ours,
        reference: theirs,
        against: "redis-cli reshard, defaults".to_owned(),
        unit: "keys/s".to_owned(),
        better: Better::More,
        bar: "≥ 4.5 x".to_owned(),
    };
    if keys_per_slot == DENSE { report.compare(pairs, |_, ratio| ratio >= 4.5) } else { report.show(pairs) }?;
    let probed = median(&mut probed);
    let p99 = percentile(&mut probes, 0.99);
    report.add(Line {
        name: format!(
            "1 kHz prober on these slots, p99 of {} ({} errors, {:.0} keys/s moved meanwhile)",
            probes.len(),
            refused.len(),
            probed
        ),
        ours: p99,
        reference: 10.0,
        against: "bound".to_owned(),
        unit: "ms".to_owned(),
        ratio: 10.0 / p99,
        bar: "≤ 10 ms, only MOVED/ASK/TRYAGAIN".to_owned(),
        met: Some(p99 <= 10.0 && refused.is_empty()),
    })?;
    ensure!(refused.is_empty(), "the prober saw {refused:?}");
    Ok(())
}

/// Keys that arrive each second while this works.
async fn rate(to: SocketAddr, work: impl Future<Output = Result<()>>) -> Result<f64> {
    let before = keys(to).await?;
    let begin = Instant::now();
    work.await?;
    let seconds = begin.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "a count of keys")]
    Ok((keys(to).await? - before) as f64 / seconds)
}

/// A move with what the controller does around it.
async fn move_as_controller(from: SocketAddr, to: SocketAddr, slots: &SlotSet) -> Result<()> {
    compression(from, "no").await?;
    move_slots(from, to, slots).await?;
    compression(from, "yes").await
}

async fn open(address: SocketAddr) -> Result<Connection> {
    Ok(Connection::open(&Options::new(address).deadline(hung::process())).await?)
}

async fn join(from: SocketAddr, to: SocketAddr) -> Result<()> {
    let mut first = open(from).await?;
    first.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await?;
    open(to).await?.call(&["CLUSTER", "SET-CONFIG-EPOCH", "2"]).await?;
    first.call(&["CLUSTER", "MEET", &to.ip().to_string(), &to.port().to_string()]).await?;
    redis::settled(&[Options::new(from), Options::new(to)], 0).await?;
    Ok(())
}

impl Load {
    /// Writes keys into the slots that will move; returns them.
    async fn fill(self, address: SocketAddr) -> Result<Vec<String>> {
        let moves = |key: &String| {
            let slot = usize::from(key_slot(key));
            slot < PAIRS * SLOTS || slot >= usize::from(plan::SLOTS) - 2 * PAIRS * SLOTS
        };
        let all = usize::from(plan::SLOTS) * self.keys_per_slot;
        let keys: Vec<String> = (0..all).map(|number| format!("key:{number}")).filter(moves).collect();
        redis::fill(&Options::new(address), &keys, self.bytes).await?;
        Ok(keys)
    }
}

async fn compression(address: SocketAddr, setting: &str) -> Result<()> {
    Ok(open(address).await?.config_set("rdbcompression", setting).await?)
}

/// Some keys of these slots.
fn some_of(keys: &[String], slots: &SlotSet) -> Vec<String> {
    keys.iter().filter(|key| slots.contains(key_slot(key))).step_by(7).cloned().collect()
}

async fn keys(address: SocketAddr) -> Result<u64> {
    let reply = open(address).await?.call(&["DBSIZE"]).await?;
    Ok(u64::try_from(reply.integer().context("DBSIZE")?)?)
}

/// The highest slots that a node owns (redis-cli takes the lowest).
async fn highest_slots(address: SocketAddr) -> Result<SlotSet> {
    let nodes = open(address).await?.cluster_nodes().await?;
    let own = nodes.iter().find(|node| node.flags.myself).context("myself")?;
    let all: Vec<u16> = own.slots.iter().flat_map(|range| range.first..=range.last).collect();
    let mut slots = SlotSet::EMPTY;
    for slot in all.iter().rev().take(SLOTS) {
        slots.insert(*slot);
    }
    Ok(slots)
}

async fn end(address: SocketAddr) -> Result<End> {
    let id = open(address).await?.my_id().await?;
    Ok(End { id: NodeId::parse(id.as_str()).context("node ID")?, address })
}

async fn move_slots(from: SocketAddr, to: SocketAddr, slots: &SlotSet) -> Result<()> {
    let (from, to) = (end(from).await?, end(to).await?);
    let moving = Moving { max_bytes_per_second: None, batch_keys: 1000, max_key_bytes: 512 << 20, paused: false };
    let (access, guard, bucket) = (Access::new(PASSWORD), Guard::always(), Mutex::new(Bucket::default()));
    let mut left = slots.clone();
    while !left.is_empty() {
        let order = Move {
            from,
            to,
            slots: &left,
            others: &[],
            unproven: &[],
            joining: None,
            engine: Engine::Redis,
            node_timeout: Duration::from_secs(5),
            moving,
        };
        let moved = migrate(order, &access, &guard, &bucket).await?;
        ensure!(moved.refused.is_empty(), "{:?}", moved.refused);
        for slot in moved.slots.iter() {
            left.remove(slot);
        }
    }
    Ok(())
}

async fn reshard(from: SocketAddr, to: SocketAddr) -> Result<()> {
    let (source, target) = (end(from).await?.id.to_string(), end(to).await?.id.to_string());
    let words = ["--cluster", "reshard", &from.to_string(), "--cluster-from", &source, "--cluster-to", &target]
        .map(str::to_owned)
        .into_iter()
        .chain(["--cluster-slots".to_owned(), SLOTS.to_string(), "--cluster-yes".to_owned()]);
    redis::redis_cli(&words.collect::<Vec<_>>()).await?;
    Ok(())
}

/// Reads and writes keys of the moving slots, about a thousand times a second.
struct Prober {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(Vec<f64>, Vec<String>)>,
}

impl Prober {
    fn start(seeds: Vec<SocketAddr>, keys: Vec<String>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let task = tokio::spawn(async move {
            let mut client = ClusterClient::new(seeds, None);
            let (mut millis, mut errors) = (Vec::new(), Vec::new());
            let mut tick = tokio::time::interval(Duration::from_millis(1));
            for (number, key) in keys.iter().cycle().enumerate() {
                tick.tick().await;
                if flag.load(Ordering::Relaxed) {
                    break;
                }
                let begin = Instant::now();
                let command = if number % 2 == 0 {
                    Command::new("GET").arg(key)
                } else {
                    Command::new("SET").arg(key).arg("probe")
                };
                if let Outcome::Refused(why) | Outcome::Unknown(why) = client.execute(key, &command).await {
                    errors.push(why);
                }
                millis.push(begin.elapsed().as_secs_f64() * 1e3);
            }
            let counters = client.counters();
            if counters.retried + counters.disconnected > 0 {
                errors.push(format!("{counters:?}"));
            }
            (millis, errors)
        });
        Self { stop, task }
    }

    async fn stop(self) -> Result<(Vec<f64>, Vec<String>)> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }
}
