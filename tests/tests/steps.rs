//! The controller's steps on real redis-servers: creation, moving slots under load, crashes in the middle, failover.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod functions;
mod late;
mod receiver;
mod replicas;
mod unheard;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use controller::execute::migrate::{Bucket, End, Error, Move, Moved, migrate};
use controller::lease::Guard;
use controller::redis::Access;
use controller::report::verdict;
use controller::resolve::Moving;
use plan::{Pod, SlotSet};
use resp::{ClusterClient, Outcome};
use serde_json::json;
use tests::fleet::{Fleet, OPERATOR, Server, is_broken_off, is_of_the_wire, node_timeout_millis};
use tokio::task::JoinHandle;
use types::engine::Engine;

fn moving() -> Moving {
    Moving { max_bytes_per_second: None, batch_keys: 100, max_key_bytes: 64 << 20, paused: false }
}

/// Writes as fast as it can and keeps the last acknowledged value of every key; deletes some, and counts others up.
struct Writer {
    stop: Arc<AtomicBool>,
    acks: Arc<AtomicU64>,
    task: JoinHandle<(ClusterClient, BTreeMap<String, Option<String>>)>,
}

impl Writer {
    fn start(mut client: ClusterClient, name: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let acks = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&acks);
        let task = tokio::spawn(async move {
            let mut acknowledged = BTreeMap::new();
            let mut round = 0_u64;
            while !stopped.load(Ordering::SeqCst) {
                round += 1;
                let key = format!("{name}:{}", round.wrapping_mul(2_654_435_761) % 5000);
                if round.is_multiple_of(7) {
                    let deleted = client.execute(&key, &resp::Command::new("DEL").arg(&key)).await;
                    assert!(matches!(deleted, Outcome::Acked(_)), "{deleted:?}");
                    acknowledged.insert(key, None);
                } else {
                    let value = format!("{round}-{}", "x".repeat(usize::try_from(round % 300).unwrap()));
                    let set = client.set(&key, &value).await;
                    assert!(matches!(set, Outcome::Acked(_)), "{set:?}");
                    acknowledged.insert(key, Some(value));
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
            (client, acknowledged)
        });
        Self { stop, acks, task }
    }

    /// Writes that were acknowledged so far.
    fn acked(&self) -> u64 {
        self.acks.load(Ordering::Relaxed)
    }

    /// Waits until so many were.
    async fn until_acked(&self, writes: u64) {
        let begun = Instant::now();
        while self.acked() < writes {
            assert!(begun.elapsed() < hung::process(), "{} of {writes} writes", self.acked());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Every acknowledged value reads back, every deleted key is gone; how many keys there were.
    async fn verify(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        let (mut client, acknowledged) = self.task.await.unwrap();
        for (key, value) in &acknowledged {
            let found = client.get(key).await.unwrap();
            let found = found.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
            assert_eq!(&found, value, "{key}");
        }
        acknowledged.len()
    }
}

async fn created(net: u8, shards: u16, members: u16) -> Fleet {
    let mut fleet =
        Fleet::start(net, shards, members, json!({"shards": shards, "replicasPerShard": members - 1})).await;
    let desired = fleet.desired(shards, members - 1);
    fleet.until_made(&desired).await;
    fleet
}

/// How long that takes is what `make bench` measures (`create`).
#[tokio::test]
async fn a_cluster_is_created_and_every_node_agrees() {
    let mut fleet = created(1, 3, 2).await;
    let probed = fleet.look_at_all().await;
    let verdict = verdict(&fleet.resolved, &probed);
    assert!(verdict.healthy, "{verdict:?}");
    assert_eq!((verdict.agreeing, verdict.in_sync, verdict.covered), (6, 3, 16384));
    assert!(controller::probe::nodes(&probed.observed).all(|node| node.node_timeout_millis == node_timeout_millis()));
}

#[tokio::test]
async fn scaling_out_and_in_under_load_loses_nothing_and_restores_settings() {
    let mut fleet = created(2, 2, 2).await;
    let writer = Writer::start(fleet.client(), "scale");
    for ordinal in 0..2 {
        fleet.add(2, Pod::new(2, ordinal)).await;
    }
    let out = fleet.desired(3, 1);
    fleet.until_satisfied(&out).await;
    // Back in: the planner empties shard 2; retiring it needs Kubernetes, so the last steps are refused here.
    let inward = fleet.desired(2, 1);
    let emptied = async {
        loop {
            let round = fleet.round(&inward).await;
            if round.plan.steps.iter().any(|step| step.kind() == "RetireShard") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(hung::change(), emptied).await.unwrap();
    writer.until_acked(1500).await;
    assert!(writer.verify().await > 1000);
    let probed = fleet.look().await;
    assert!(probed.facts.values().all(|facts| facts.compresses), "compression was put back");
}

async fn end(server: &Server) -> End {
    End { id: server.id().await, address: server.address }
}

fn slots(first: u16, last: u16) -> SlotSet {
    SlotSet::range(first, last)
}

async fn ends(fleet: &Fleet) -> (End, End) {
    (end(&fleet.servers[&Pod::new(0, 0)]).await, end(&fleet.servers[&Pod::new(1, 0)]).await)
}

fn order<'a>(from: End, to: End, slots: &'a SlotSet) -> Move<'a> {
    let node_timeout = Duration::from_millis(node_timeout_millis());
    Move {
        from,
        to,
        slots,
        others: &[],
        unproven: &[],
        joining: None,
        engine: Engine::Redis,
        node_timeout,
        moving: moving(),
    }
}

/// Whether the controller's next round goes on from there: on a machine that stands still the product gives a node up, and a node that wakes up
/// has not heard enough of the others yet.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Node(node) if is_of_the_wire(node))
        || matches!(error, Error::Precondition(why) if why.ends_with("does not report the cluster as ok"))
}

/// Goes on where that was so. Nothing else is tried again. Also whether it was done at one go: what an attempt that broke off had moved, nobody
/// counts.
async fn moved(order: Move<'_>, guard: &Guard, bucket: &std::sync::Mutex<Bucket>) -> (Result<Moved, Error>, bool) {
    let (access, begun, mut at_one_go) = (Access::new(OPERATOR), Instant::now(), true);
    loop {
        match migrate(order, &access, guard, bucket).await {
            Err(error) if is_passing(&error) => {
                assert!(begun.elapsed() < hung::change(), "{error}");
                at_one_go = false;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            done => return (done, at_one_go),
        }
    }
}

/// Moves until just these are handed over: a move returns after some seconds, and on a slow machine slots are left. What the last one says.
async fn until_moved(order: Move<'_>, wanted: &SlotSet, bucket: &std::sync::Mutex<Bucket>) -> Moved {
    let begun = Instant::now();
    loop {
        let moved = moved(order, &Guard::always(), bucket).await.0.unwrap();
        if moved.slots == *wanted {
            return moved;
        }
        assert!(begun.elapsed() < hung::change(), "{wanted} do not arrive, but {}", moved.slots);
    }
}

#[tokio::test]
async fn a_move_that_stops_after_any_exchange_is_resumed_and_loses_nothing() {
    let fleet = created(3, 2, 1).await;
    let writer = Writer::start(fleet.client(), "crash");
    writer.until_acked(1000).await;
    let (from, to) = ends(&fleet).await;
    let all = slots(0, 399);
    let access = Access::new(OPERATOR);
    let mut pause = 1;
    let mut errors = Vec::new();
    let (before, begun, mut good) = (writer.acked(), Instant::now(), Instant::now());
    // The controller dies after ever longer times: the future is dropped in the middle of an exchange.
    loop {
        let bucket = std::sync::Mutex::new(Bucket::default());
        let guard = Guard::always();
        let attempt = migrate(order(from, to, &all), &access, &guard, &bucket);
        match tokio::time::timeout(Duration::from_millis(pause), attempt).await {
            Ok(Ok(moved)) if moved.slots == all => break,
            Ok(Ok(_)) => errors.clear(),
            // What the dropped attempt had sent may still be carried out while the next one looks: that one then stops, and one after it goes
            // on, as after one that found an end that stood still.
            Ok(Err(error)) => {
                errors.push(error.to_string());
                assert!(good.elapsed() < hung::process(), "one after the other: {errors:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            Err(_) => {
                pause += 3;
                errors.clear();
            }
        }
        good = Instant::now();
        assert!(begun.elapsed() < hung::change(), "never finished");
    }
    let meanwhile = writer.acked() - before;
    assert!(meanwhile > 100, "{meanwhile} writes were acknowledged while slots moved");
    let mut source = fleet.servers[&Pod::new(0, 0)].operator().await;
    let mine = source.cluster_nodes().await.unwrap().into_iter().find(|node| node.flags.myself).unwrap();
    assert!(!mine.owns(0) && !mine.owns(399) && mine.owns(400));
    assert!(mine.migrating.is_empty());
    let keys = writer.verify().await;
    assert!(keys > 500, "{keys}");
}

/// A slot with keys, half of which have moved from their shard's primary to another's; who is what, and the keys.
struct HalfMoved {
    fleet: Fleet,
    slot: u16,
    from: u16,
    to: u16,
    keys: Vec<String>,
}

impl HalfMoved {
    async fn make(net: u8) -> Self {
        let half = Self::prepare(net).await;
        half.begin().await;
        half
    }

    /// Before anything has moved.
    async fn prepare(net: u8) -> Self {
        let fleet = created(net, 3, 2).await;
        let mut client = fleet.client();
        let keys: Vec<String> = (0..40).map(|n| format!("{{half}}{n}")).collect();
        for key in &keys {
            assert!(matches!(client.set(key, "v").await, Outcome::Acked(_)));
        }
        let slot = resp::slot::key_slot("half");
        let mut from = None;
        for shard in 0..3 {
            let mut operator = fleet.servers[&Pod::new(shard, 0)].operator().await;
            let table = operator.cluster_nodes().await.unwrap();
            if table.iter().any(|node| node.flags.myself && node.owns(slot)) {
                from = Some(shard);
            }
        }
        let from = from.unwrap();
        Self { fleet, slot, from, to: (from + 1) % 3, keys }
    }

    /// To hand the role of the source over, as a look from before says.
    fn hand_over(&self, probed: &controller::probe::Probed, how: plan::FailoverHow) -> plan::Plan {
        let [primary, replica] = [0, 1].map(|ordinal| Pod::new(self.from, ordinal));
        let [primary, id] = [primary, replica].map(|pod| match &probed.observed.members[&pod].seen {
            plan::Seen::Node(node) => node.id,
            other => panic!("{pod} is {other:?}"),
        });
        let step = plan::Step::Failover {
            replica: plan::Who { pod: replica, id },
            primary,
            how,
            over: None,
            unheard: SlotSet::EMPTY,
        };
        plan::Plan { steps: vec![step], ..plan::Plan::default() }
    }

    /// Both primaries that the slot is half moved between.
    fn ends(&self) -> [Pod; 2] {
        [self.from, self.to].map(|shard| Pod::new(shard, 0))
    }

    /// These die, and the source's replica is promoted in this way: it does not stand by itself, or where the machine stands still those who vote
    /// elect it without a word from us. Whether it was seen to be.
    async fn loses(&mut self, dead: &[Pod], how: plan::FailoverHow) -> bool {
        let heir = Pod::new(self.from, 1);
        let mut replica = self.fleet.servers[&heir].operator().await;
        replica.call(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]).await.unwrap();
        let probed = self.fleet.look_at_all().await;
        for pod in dead {
            self.fleet.servers.get_mut(pod).unwrap().kill().await;
        }
        let begun = Instant::now();
        while replica.info(&["replication"]).await.unwrap().get("master_link_status") == Some("up") {
            assert!(begun.elapsed() < hung::change(), "the link stays up");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let plan = self.hand_over(&probed, how);
        // Who was seen is asked whether it leads by now: no heir is promoted on a look at a primary that lived.
        let alive: Vec<Pod> = self.fleet.servers.keys().copied().filter(|pod| !dead.contains(pod)).collect();
        let gone = self.fleet.look_at(&alive).await;
        self.fleet.promote(&plan, &gone, heir).await
    }

    /// What the shard's second member answers of a key that has moved.
    async fn heir_says(&self) -> String {
        let mut heir = self.fleet.servers[&Pod::new(self.from, 1)].application().await;
        format!("{:?}", heir.call(&["EXISTS", &self.keys[0]]).await)
    }

    async fn begin(&self) {
        let [source, target] = [self.from, self.to].map(|shard| &self.fleet.servers[&Pod::new(shard, 0)]);
        let (slot, from, to) = (self.slot.to_string(), source.id().await.to_string(), target.id().await.to_string());
        let (mut source, mut heir) = (source.operator().await, target.operator().await);
        heir.call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]).await.unwrap();
        source.call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]).await.unwrap();
        self.sends(0).await;
    }

    /// Every second key moves, from this one on.
    async fn sends(&self, first: usize) {
        let [source, target] = [self.from, self.to].map(|shard| &self.fleet.servers[&Pod::new(shard, 0)]);
        let (ip, port) = (target.address.ip().to_string(), target.address.port().to_string());
        let fixed = ["MIGRATE", &ip, &port, "", "0", "60000", "AUTH2", "kun-operator", OPERATOR, "KEYS"];
        let keys = self.keys.iter().skip(first).step_by(2).map(String::as_str);
        let words: Vec<&str> = fixed.into_iter().chain(keys).collect();
        let (mut source, mut target) = (source.operator().await, target.operator().await);
        source.call(&words).await.unwrap();
        // The replicas have what their primaries have: WAIT is about what was there at its connection's last command.
        for connection in [&mut source, &mut target] {
            connection.call(&["PING"]).await.unwrap();
            connection.call(&["WAIT", "1", "0"]).await.unwrap();
        }
    }

    /// The primary of a shard dies, and its replica is elected.
    async fn replace(&mut self, shard: u16) {
        self.fleet.servers.get_mut(&Pod::new(shard, 0)).unwrap().kill().await;
        let begun = Instant::now();
        let mut replica = self.fleet.servers[&Pod::new(shard, 1)].operator().await;
        while !matches!(replica.role().await, Ok(resp::Role::Primary { .. })) {
            assert!(begun.elapsed() < hung::change(), "nobody is elected");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Moves the slot on from the heir of its giver, as soon as all agree that it has it; what the move waits for.
    async fn moves_on(&mut self) -> Option<String> {
        let [heir, target] = [(self.from, 1), (self.to, 0)].map(|(shard, ordinal)| Pod::new(shard, ordinal));
        let [from, to] = [heir, target].map(|pod| &self.fleet.servers[&pod]);
        let (from, to) = (from.id().await, to.id().await);
        let who = |pod, id| plan::Who { pod, id };
        let step = plan::Step::Move { from: who(heir, from), to: who(target, to), slots: slots(self.slot, self.slot) };
        let plan = plan::Plan { steps: vec![step], ..plan::Plan::default() };
        let begun = Instant::now();
        loop {
            let probed = self.fleet.look_at(&[heir, target]).await;
            match self.fleet.carry_out(&plan, &probed).await {
                Ok(done) => return done.held,
                Err(why) => assert!(begun.elapsed() < hung::change(), "{why}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn settles_with_all_keys(mut self) {
        let desired = self.fleet.desired(3, 1);
        self.fleet.until_satisfied(&desired).await;
        let mut client = self.fleet.client();
        for key in &self.keys {
            assert_eq!(client.get(key).await.unwrap().unwrap(), "v", "{key}");
        }
    }
}

/// Measured before: for the target the slot belongs to nobody, and MIGRATE is answered CLUSTERDOWN, for ever.
#[tokio::test]
async fn a_slot_whose_source_is_replaced_in_the_middle_is_finished() {
    let mut half = HalfMoved::make(27).await;
    let source = half.from;
    half.replace(source).await;
    half.fleet.servers.get_mut(&Pod::new(source, 0)).unwrap().run().await;
    half.settles_with_all_keys().await;
}

/// Before, the slot waited without a mark: the heir let clients make anew what had moved, and that was put over what had arrived.
#[tokio::test]
async fn the_heir_of_a_giver_is_marked_while_the_receiver_writes_its_file_anew() {
    let mut half = HalfMoved::make(151).await;
    let (source, heir, target) = (Pod::new(half.from, 0), Pod::new(half.from, 1), Pod::new(half.to, 0));
    half.replace(source.shard).await;
    let mut desired = half.fleet.desired(3, 1);
    desired.restart_keeps_data = true;
    let begun = Instant::now();
    while !half.heir_says().await.contains(&format!("ASK {}", half.slot)) {
        let mut probed = half.fleet.look_at(&[heir, target]).await;
        for member in probed.observed.members.values_mut() {
            if let plan::Seen::Node(node) = &mut member.seen {
                node.disk = plan::Disk::Rewriting;
            }
        }
        let plan = plan::plan(&desired, &probed.observed, &half.fleet.limits);
        assert!(plan.steps.iter().all(|step| step.kind() != "Move"), "{plan:?}");
        let failed = half.fleet.execute(&plan, &probed).await.failed;
        assert!(begun.elapsed() < hung::process(), "{plan:?} {failed:?}");
    }
    half.fleet.servers.get_mut(&source).unwrap().run().await;
    half.settles_with_all_keys().await;
}

#[tokio::test]
async fn a_slot_whose_target_is_replaced_in_the_middle_is_finished() {
    let mut half = HalfMoved::make(28).await;
    let target = half.to;
    half.replace(target).await;
    half.fleet.servers.get_mut(&Pod::new(target, 0)).unwrap().run().await;
    half.settles_with_all_keys().await;
}

/// Before, its heir answered that what had moved did not exist.
#[tokio::test]
async fn no_role_moves_in_the_middle_of_a_slot_that_an_older_look_misses() {
    let mut half = HalfMoved::prepare(42).await;
    let older = half.fleet.look_at_all().await;
    half.begin().await;
    let plan = half.hand_over(&older, plan::FailoverHow::Coordinated);
    let why = format!("slot {} of {}-0 is half moved: its role moves once that is finished", half.slot, half.from);
    assert_eq!(half.fleet.carry_out(&plan, &older).await.map(drop), Err(why));
    half.settles_with_all_keys().await;
}

/// A role that moves while the machine stands still is not seen moving, and then nothing is marked. Begun anew on another net, and the last time
/// it counts.
async fn promoted(nets: [u8; 3], dead: usize, how: plan::FailoverHow) -> HalfMoved {
    let mut tries = nets.into_iter();
    loop {
        let mut half = HalfMoved::make(tries.next().unwrap()).await;
        let ends = half.ends();
        if half.loses(&ends[..dead], how).await || tries.len() == 0 {
            return half;
        }
    }
}

/// Its own votes would have made it the primary a little later, without the marks.
#[tokio::test]
async fn the_heir_of_a_dead_primary_sends_clients_to_where_keys_have_moved() {
    let mut half = promoted([43, 51, 52], 1, plan::FailoverHow::Force).await;
    let says = half.heir_says().await;
    assert!(says.contains(&format!("ASK {}", half.slot)), "{says}");
    let source = half.from;
    half.fleet.servers.get_mut(&Pod::new(source, 0)).unwrap().run().await;
    half.settles_with_all_keys().await;
}

/// Before, the heir knew of no mark, and what had arrived at the other end was missing for clients, who made it anew.
#[tokio::test]
async fn the_heir_of_a_giver_knows_of_a_receiver_that_is_dead_as_well() {
    let mut half = promoted([48, 53, 54], 2, plan::FailoverHow::Takeover).await;
    let begun = Instant::now();
    let mut says = half.heir_says().await;
    // Most primaries were gone until now.
    while says.contains("CLUSTERDOWN") {
        assert!(begun.elapsed() < hung::change(), "{says}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        says = half.heir_says().await;
    }
    assert!(says.contains(&format!("ASK {}", half.slot)), "{says}");
    for end in half.ends() {
        half.fleet.servers.get_mut(&end).unwrap().run().await;
    }
    half.settles_with_all_keys().await;
}

/// A third shard that takes 7 MB: it has got about 4 MB of whole slots, and then a part of one slot of as much. Clients write all the time, and on
/// a slow machine what goes to and from them takes up to a megabyte.
struct Full {
    fleet: Fleet,
    slot: u16,
    keys: Vec<String>,
    stop: Arc<AtomicBool>,
    writer: JoinHandle<(ClusterClient, BTreeMap<String, String>, u64)>,
}

impl Full {
    async fn make(net: u8) -> Self {
        let mut fleet = created(net, 2, 1).await;
        let mut client = fleet.client();
        let (slot, value) = (resp::slot::key_slot("one"), "x".repeat(1000));
        let keys: Vec<String> = (0..3000).map(|n| format!("{{one}}{n}")).collect();
        let others: Vec<String> = (0..8000).map(|n| format!("whole{n}")).collect();
        for key in keys.iter().chain(&others) {
            assert!(matches!(client.set(key, &value).await, Outcome::Acked(_)));
        }
        fleet.add(net, Pod::new(2, 0)).await;
        let mut target = fleet.servers[&Pod::new(2, 0)].operator().await;
        let used = target.info(&["memory"]).await.unwrap().number("used_memory").unwrap();
        target.call(&["CONFIG", "SET", "maxmemory", &(used + (7 << 20)).to_string()]).await.unwrap();
        let source = if slot < 8192 { 0 } else { 1 };
        let stop = Arc::new(AtomicBool::new(false));
        let mut single = BTreeMap::new();
        others.iter().for_each(|key| *single.entry(resp::slot::key_slot(key)).or_insert(0) += 1);
        let single: SlotSet = single.into_iter().filter(|(_, keys)| *keys == 1).map(|(slot, _)| slot).collect();
        let writer = write(fleet.client(), others, Arc::clone(&stop));
        let mut full = Self { fleet, slot, keys, stop, writer };
        full.fill(source, &single).await;
        full
    }

    /// Whole slots arrive, then a part of one, then nothing of those with a single key.
    async fn fill(&mut self, source: u16, single: &SlotSet) {
        let all = slots(if source == 0 { 0 } else { 8192 }, if source == 0 { 8191 } else { 16_383 });
        let whole = all.difference(&slots(self.slot, self.slot)).lowest(6000);
        // They know each other, and nothing has moved yet.
        let mut desired = self.fleet.desired(3, 0);
        desired.hold = Some(plan::Hold::Paused);
        let begun = Instant::now();
        while self.fleet.round(&desired).await.plan.waiting
            != [plan::Waiting::Hold { hold: plan::Hold::Paused, slots: 5461 }]
        {
            assert!(begun.elapsed() < hung::change(), "the new shard is not known");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let [from, to] = [Pod::new(source, 0), Pod::new(2, 0)].map(|pod| &self.fleet.servers[&pod]);
        let (from, to) = (end(from).await, end(to).await);
        let (bucket, guard) = (std::sync::Mutex::new(Bucket::default()), Guard::always());
        until_moved(order(from, to, &whole), &whole, &bucket).await;
        let one = slots(self.slot, self.slot);
        let others = all.difference(&whole).difference(&one).intersection(single);
        for more in [one, others] {
            let refused = moved(order(from, to, &more), &guard, &bucket).await.0.unwrap_err();
            assert!(refused.to_string().contains("OOM command not allowed"), "{refused}");
        }
    }

    async fn open(&self, shard: u16) -> Vec<u16> {
        let mut operator = self.fleet.servers[&Pod::new(shard, 0)].operator().await;
        let table = operator.cluster_nodes().await.unwrap();
        let me = table.into_iter().find(|node| node.flags.myself).unwrap();
        me.migrating.into_iter().chain(me.importing).map(|(slot, _)| slot).collect()
    }

    async fn verify(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let (mut client, acknowledged, acks) = self.writer.await.unwrap();
        for (key, value) in &acknowledged {
            assert_eq!(client.get(key).await.unwrap().unwrap(), value.as_str(), "{key}, of {acks} writes");
        }
        for key in &self.keys {
            assert_eq!(client.get(key).await.unwrap().unwrap().len(), 1000, "{key}");
        }
        drop(self.fleet.look().await);
    }
}

/// Writes to keys that exist and to new ones, also of the half-moved slot; keeps what was acknowledged. A full server refuses writes.
fn write(
    mut client: ClusterClient,
    keys: Vec<String>,
    stop: Arc<AtomicBool>,
) -> JoinHandle<(ClusterClient, BTreeMap<String, String>, u64)> {
    tokio::spawn(async move {
        let (mut acknowledged, mut round) = (BTreeMap::new(), 0_u64);
        while !stop.load(Ordering::SeqCst) {
            round += 1;
            let key = match round % 3 {
                0 => format!("{{one}}new{}", round % 500),
                _ => keys[usize::try_from(round.wrapping_mul(2_654_435_761) % 8000).unwrap()].clone(),
            };
            let value = format!("{round}-{}", "y".repeat(900));
            match client.set(&key, &value).await {
                Outcome::Acked(_) => drop(acknowledged.insert(key, value)),
                Outcome::Refused(why) => assert!(why.contains("OOM") || why.contains("redirect"), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        (client, acknowledged, round)
    })
}

#[tokio::test]
async fn a_half_moved_slot_whose_target_is_full_waits_and_comes_back_with_its_shard() {
    let mut full = Full::make(29).await;
    let source = if full.slot < 8192 { 0 } else { 1 };
    assert_eq!((full.open(source).await, full.open(2).await), (vec![full.slot], vec![full.slot]));
    // Wanted there, it waits: no step is tried again and again.
    let out = full.fleet.desired(3, 0);
    let begun = Instant::now();
    while !full.fleet.round(&out).await.plan.steps.is_empty() {
        assert!(begun.elapsed() < hung::change(), "it is tried again and again");
    }
    let mut told = 0;
    while told < 3 {
        let round = full.fleet.round(&out).await;
        let (steps, waiting) = (&round.plan.steps, &round.plan.waiting);
        // The machine stood still during the look, or something is mended after that: then it counts from there.
        if !steps.is_empty() || waiting.iter().any(|why| matches!(why, plan::Waiting::Unknown { .. })) {
            assert!(begun.elapsed() < hung::change(), "{steps:?} {waiting:?}");
            told = if steps.is_empty() { told } else { 0 };
            continue;
        }
        told += 1;
        let [plan::Waiting::Room { pod, from, slots, half_moved: true, gives: true, room, needs }] =
            round.plan.waiting[..]
        else {
            panic!("{:?}", round.plan.waiting)
        };
        assert_eq!((pod, from, slots, needs), (Pod::new(2, 0), Pod::new(source, 0), 1, 256 << 10));
        assert!(room < needs, "{room}");
    }
    // Not wanted there any more, it comes back with all the rest.
    let inward = full.fleet.desired(2, 0);
    let begun = Instant::now();
    loop {
        let round = full.fleet.round(&inward).await;
        if round.plan.steps.iter().any(|step| step.kind() == "RetireShard") {
            break;
        }
        assert!(begun.elapsed() < hung::change(), "{:?}", (round.plan, round.executed.failed));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((full.open(source).await, full.open(2).await), (vec![], vec![]));
    full.verify().await;
}

/// Every primary whose keys could not be counted at one go was taken for unknown before, and nothing was planned.
#[tokio::test]
async fn a_member_whose_keys_are_not_counted_is_known_all_the_same() {
    let mut fleet = created(30, 3, 1).await;
    let mut client = fleet.client();
    for n in 0..100 {
        assert!(matches!(client.set(&format!("key{n}"), "v").await, Outcome::Acked(_)));
    }
    let pod = Pod::new(2, 0);
    fleet.servers.get_mut(&pod).unwrap().run_without("cluster|countkeysinslot").await;
    fleet.memory.count_anew();
    let all = fleet.desired(3, 0);
    fleet.until_satisfied(&all).await;
    let begun = Instant::now();
    loop {
        let probed = fleet.look_at_all().await;
        let uncounted: Vec<SlotSet> =
            controller::probe::nodes(&probed.observed).map(|node| node.uncounted.clone()).collect();
        // Else the machine stood still while keys were counted.
        if uncounted == [SlotSet::EMPTY, SlotSet::EMPTY, slots(0, 10_921)] {
            return;
        }
        assert!(begun.elapsed() < hung::change(), "{uncounted:?}");
    }
}

/// What becomes of them a person decides, who hears of which slots their owners lack some.
#[tokio::test]
async fn keys_of_a_former_primary_are_compared_with_those_of_their_owners() {
    let mut fleet = created(68, 2, 1).await;
    let (to, from) = ends(&fleet).await;
    let (owner, former) = (Pod::new(0, 0), Pod::new(1, 0));
    let all = slots(8_192, 16_383);
    until_moved(order(from, to, &all), &all, &std::sync::Mutex::new(Bucket::default())).await;
    let (keys, slot) = (["{t}a", "{t}b"], resp::slot::key_slot("{t}"));
    let mark = ["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &to.id.to_string()];
    fleet.servers[&former].operator().await.call(&mark).await.unwrap();
    let mut held = fleet.servers[&former].application().await;
    let mut there = fleet.servers[&owner].application().await;
    for (key, is_there) in keys.into_iter().zip([false, true]) {
        let set = [resp::Command::new("ASKING"), resp::Command::new("SET").args([key, "v"])];
        assert!(held.pipeline(&set).await.unwrap().iter().all(resp::Reply::is_ok));
        for key in keys.into_iter().filter(|_| is_there) {
            there.call(&["SET", key, "v"]).await.unwrap();
        }
        let begun = Instant::now();
        let compared = loop {
            let probed = fleet.look_at_all().await;
            let compared: Vec<_> =
                controller::probe::nodes(&probed.observed).map(|node| node.compared.clone()).collect();
            // Else the machine stood still during the look.
            if compared.iter().any(|slots| !slots.is_empty()) {
                break compared;
            }
            assert!(begun.elapsed() < hung::change(), "they are not compared");
        };
        // An answer counts for as many keys as it was about.
        assert_eq!(compared, [BTreeMap::new(), BTreeMap::from([(slot, is_there)])]);
    }
}

#[tokio::test]
async fn a_key_that_is_too_large_stays_and_so_does_its_slot() {
    let fleet = created(5, 2, 1).await;
    let (from, to) = ends(&fleet).await;
    let mut client = fleet.client();
    let big = (0..).map(|n| format!("big{n}")).find(|key| resp::slot::key_slot(key) < 100).unwrap();
    let slot = resp::slot::key_slot(&big);
    assert!(matches!(client.set(&big, "x".repeat(300_000)).await, Outcome::Acked(_)));
    let some = slots(0, 99);
    let mut order = order(from, to, &some);
    order.moving.max_key_bytes = 100_000;
    let bucket = std::sync::Mutex::new(Bucket::default());
    let refused = until_moved(order, &some.difference(&slots(slot, slot)), &bucket).await.refused;
    assert_eq!(refused.iter().map(|key| key.slot).collect::<Vec<_>>(), [slot]);
    let mut source = fleet.servers[&Pod::new(0, 0)].operator().await;
    let mine = source.cluster_nodes().await.unwrap().into_iter().find(|node| node.flags.myself).unwrap();
    assert!(mine.owns(slot) && mine.migrating.is_empty());
    assert_eq!(client.get(&big).await.unwrap().unwrap().len(), 300_000);
}

/// Who asks for a key that has moved is sent to and fro while the target does not import the slot.
#[tokio::test]
async fn a_slot_that_one_key_keeps_half_moved_is_not_closed_and_opened_each_time() {
    let fleet = created(32, 2, 1).await;
    let (from, to) = ends(&fleet).await;
    let mut client = fleet.client();
    let big = (0..).map(|n| format!("big{n}")).find(|key| resp::slot::key_slot(key) < 100).unwrap();
    let (slot, small) = (resp::slot::key_slot(&big), format!("{{{big}}}small"));
    for (key, len) in [(&big, 300_000), (&small, 3)] {
        assert!(matches!(client.set(key, "x".repeat(len)).await, Outcome::Acked(_)));
    }
    let [mut source, mut target] =
        [fleet.servers[&Pod::new(0, 0)].operator().await, fleet.servers[&Pod::new(1, 0)].operator().await];
    let (number, ip, port) = (slot.to_string(), to.address.ip().to_string(), to.address.port().to_string());
    target.call(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &from.id.to_string()]).await.unwrap();
    source.call(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &to.id.to_string()]).await.unwrap();
    let part = ["MIGRATE", &ip, &port, "", "0", "60000", "AUTH2", "kun-operator", OPERATOR, "KEYS", &small];
    source.call(&part).await.unwrap();
    let (one, bucket) = (slots(slot, slot), std::sync::Mutex::new(Bucket::default()));
    let mut marks = Vec::new();
    for _ in 0..3 {
        let mut order = order(from, to, &one);
        order.moving.max_key_bytes = 100_000;
        let moved = moved(order, &Guard::always(), &bucket).await.0.unwrap();
        assert_eq!(moved.refused.iter().map(|key| key.slot).collect::<Vec<_>>(), [slot]);
        let stats = target.info(&["commandstats"]).await.unwrap();
        marks.push(stats.get("cmdstat_cluster|setslot").unwrap().split_once(',').unwrap().0.to_owned());
    }
    assert_eq!(marks, vec![marks[0].clone(); 3]);
    for (key, len) in [(&big, 300_000), (&small, 3)] {
        assert_eq!(client.get(key).await.unwrap().unwrap().len(), len);
    }
}

/// Before, each kept its own node while it waited for the other's.
#[tokio::test]
async fn marks_of_two_primaries_are_cleared_side_by_side() {
    let mut fleet = created(67, 2, 1).await;
    let (one, other) = ends(&fleet).await;
    let pods = [Pod::new(0, 0), Pod::new(1, 0)];
    let mut steps = Vec::new();
    for (pod, id, to, slot) in [(pods[0], one.id, other.id, 0), (pods[1], other.id, one.id, 16_383)] {
        let mut redis = fleet.servers[&pod].operator().await;
        redis.call(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &to.to_string()]).await.unwrap();
        steps.push(plan::Step::Stabilise { node: plan::Who { pod, id }, slots: slots(slot, slot) });
    }
    let probed = fleet.look_at_all().await;
    let plan = plan::Plan { steps, ..plan::Plan::default() };
    let carried_out = tokio::time::timeout(hung::change(), fleet.carry_out(&plan, &probed)).await;
    assert_eq!(carried_out.expect("they wait for each other").map(drop), Ok(()));
    let probed = fleet.look_at_all().await;
    assert!(controller::probe::nodes(&probed.observed).all(|node| node.open.is_empty()));
}

/// Before, the batch ended there, at this look and at every later one.
#[tokio::test]
async fn a_release_that_fails_keeps_other_members_from_nothing() {
    let mut fleet = created(47, 2, 2).await;
    let probed = fleet.look_at_all().await;
    let mut steps = vec![plan::Step::Release { pod: Pod::new(1, 1), how: plan::ReleaseHow::AsIs }];
    for pod in [Pod::new(1, 1), Pod::new(0, 0)] {
        let node = plan::Who { pod, id: fleet.servers[&pod].id().await };
        steps.push(plan::Step::NodeTimeout { node, millis: node_timeout_millis() });
    }
    let plan = plan::Plan { steps: steps.clone(), ..plan::Plan::default() };
    let (begun, mut executed) = (Instant::now(), fleet.execute(&plan, &probed).await);
    // The machine stood still.
    while executed.failed.iter().any(|(_, error)| is_broken_off(error)) {
        assert!(begun.elapsed() < hung::change(), "{:?}", executed.failed);
        executed = fleet.execute(&plan, &probed).await;
    }
    let done: Vec<_> = executed.done.into_iter().map(|(step, _)| step).collect();
    let failed: Vec<_> = executed.failed.into_iter().map(|(step, _)| step).collect();
    // The second step is of the member that could not be released.
    assert_eq!((done.as_slice(), failed.as_slice()), (&steps[2..], &steps[..1]));
}

#[tokio::test]
async fn nothing_is_sent_without_the_lease_or_to_another_node() {
    let fleet = created(6, 2, 1).await;
    let (from, to) = ends(&fleet).await;
    let one = slots(0, 0);
    let bucket = std::sync::Mutex::new(Bucket::default());
    let outcome = moved(order(from, to, &one), &Guard::new(), &bucket).await.0;
    assert!(matches!(outcome, Err(Error::NotLeading)), "{outcome:?}");
    let wrong = End { id: to.id, address: from.address };
    let outcome = moved(order(wrong, to, &one), &Guard::always(), &bucket).await.0;
    assert!(matches!(outcome, Err(Error::Node(controller::redis::Error::Identity { .. }))), "{outcome:?}");
    let mut source = fleet.servers[&Pod::new(0, 0)].operator().await;
    let mine = source.cluster_nodes().await.unwrap().into_iter().find(|node| node.flags.myself).unwrap();
    assert!(mine.owns(0) && mine.migrating.is_empty());
}

#[tokio::test]
async fn nothing_is_moved_into_a_primary_that_has_been_replaced_and_does_not_know_it() {
    let fleet = created(10, 3, 1).await;
    let (from, to) = ends(&fleet).await;
    let heir = end(&fleet.servers[&Pod::new(2, 0)]).await.id.to_string();
    let mut source = fleet.servers[&Pod::new(0, 0)].operator().await;
    let one = slots(0, 0);
    let mut refused = Vec::new();
    // The source hears that somebody else owns a slot of the target; the target has not heard. Its next ping mends that, so a few tries.
    for _ in 0..20 {
        source.call(&["CLUSTER", "SETSLOT", "10000", "NODE", &heir]).await.unwrap();
        let bucket = std::sync::Mutex::new(Bucket::default());
        match moved(order(from, to, &one), &Guard::always(), &bucket).await.0 {
            Err(Error::Precondition(why)) => refused.push(why),
            other => assert!(other.is_ok(), "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let why = "the target claims 1 slots that the other end does not take for its own";
    assert!(refused.contains(&why.to_owned()), "{refused:?}");
}

#[tokio::test]
async fn the_rate_limit_of_the_user_is_kept() {
    let fleet = created(7, 2, 1).await;
    let (from, to) = ends(&fleet).await;
    let mut client = fleet.client();
    let keys = (0..).map(|n| format!("rate{n}")).filter(|key| resp::slot::key_slot(key) < 200);
    for key in keys.take(200) {
        assert!(matches!(client.set(&key, "x".repeat(1000)).await, Outcome::Acked(_)));
    }
    let (some, others, limit) = (slots(0, 99), slots(100, 199), 250_000);
    let limited = |slots| {
        let mut order = order(from, to, slots);
        order.moving.max_bytes_per_second = Some(limit);
        order
    };
    let (access, guard) = (Access::new(OPERATOR), Guard::always());
    let bucket = std::sync::Mutex::new(Bucket::default());
    let begun = Instant::now();
    let (moved, at_one_go) = moved(limited(&some), &guard, &bucket).await;
    let moved = moved.unwrap();
    let mut target = fleet.servers[&Pod::new(1, 0)].operator().await;
    let arrived = target.call(&["DBSIZE"]).await.unwrap().integer();
    assert!(arrived > Some(10), "{arrived:?}");
    if at_one_go {
        assert_eq!(arrived, Some(i64::try_from(moved.keys).unwrap()));
    }
    // Every byte is paid for, from the beginning on, however long it took.
    let paid = bucket.lock().unwrap().wait(begun);
    assert!(paid >= Duration::from_millis(moved.bytes * 1000 / limit), "{} bytes cost {paid:?}", moved.bytes);
    // Who comes into a debt of ten minutes waits for its end and sends nothing; that it does nothing takes a moment to see.
    bucket.lock().unwrap().spend(600 * limit, Instant::now());
    let waiting = migrate(limited(&others), &access, &guard, &bucket);
    let waited = tokio::time::timeout(Duration::from_millis(500), waiting).await;
    // One that breaks off because the machine stood still has sent nothing either.
    assert!(waited.as_ref().map_or(true, |done| done.as_ref().is_err_and(is_passing)), "{waited:?}");
    assert_eq!(target.call(&["DBSIZE"]).await.unwrap().integer(), arrived);
}

#[tokio::test]
async fn a_planned_failover_is_done_when_the_role_has_changed_and_loses_nothing() {
    let mut fleet = created(8, 2, 2).await;
    let writer = Writer::start(fleet.client(), "failover");
    writer.until_acked(200).await;
    let before = fleet.servers[&Pod::new(0, 0)].id().await;
    let mut desired = fleet.desired(2, 1);
    desired.failover = Some(plan::FailoverRequest {
        shard: 0,
        from: before,
        candidate: Some(1),
        how: plan::FailoverHow::Coordinated,
        accept_data_loss: false,
    });
    let done = async {
        while fleet.round(&desired).await.plan.operation != Some(plan::Operation::Done) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(hung::change(), done).await.expect("the failover is seen as done");
    assert!(writer.verify().await > 100);
}

#[tokio::test]
async fn a_role_goes_to_a_member_once_its_append_only_file_is_written() {
    let mut fleet = created(26, 2, 2).await;
    let (primary, heir) = (Pod::new(0, 0), Pod::new(0, 1));
    let mut client = fleet.client();
    for n in 0..400 {
        assert!(matches!(client.set(&format!("k{n}"), "v").await, Outcome::Acked(_)));
    }
    // Switched on while it runs, the file counts once everything that is in memory has been written to it, here slowly.
    let mut replica = fleet.servers[&heir].operator().await;
    for (name, value) in [("rdb-key-save-delay", "60000"), ("appendonly", "no"), ("appendonly", "yes")] {
        replica.config_set(name, value).await.unwrap();
    }
    let probed = fleet.look_at_all().await;
    let node = |pod| match &probed.observed.members[&pod].seen {
        plan::Seen::Node(node) => node,
        other => panic!("{pod} is {other:?}"),
    };
    assert_eq!((node(primary).disk, node(heir).disk), (plan::Disk::Current, plan::Disk::Rewriting));
    let mut desired = fleet.desired(2, 1);
    let (from, how) = (fleet.servers[&primary].id().await, plan::FailoverHow::Coordinated);
    desired.failover = Some(plan::FailoverRequest { shard: 0, from, candidate: None, how, accept_data_loss: false });
    // As if the shard had rested since its last election.
    let rested = plan::Observed { elections: BTreeMap::new(), ..probed.observed.clone() };
    let plan = plan::plan(&desired, &rested, &fleet.limits);
    assert_eq!((plan.steps, plan.waiting), (vec![], vec![plan::Waiting::Disk { pod: heir, fails: None }]));
    let done = async {
        while fleet.round(&desired).await.plan.operation != Some(plan::Operation::Done) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(hung::change(), done).await.expect("the failover is seen as done");
    let info = replica.info(&["persistence"]).await.unwrap();
    assert_eq!(info.flag("aof_rewrite_in_progress"), Some(false), "it was handed over before its file was written");
}

#[tokio::test]
async fn a_member_that_does_not_answer_is_unknown_and_not_absent() {
    let mut fleet = created(9, 2, 1).await;
    fleet.servers.get_mut(&Pod::new(1, 0)).unwrap().kill().await;
    let probed = fleet.look().await;
    let seen = &probed.observed.members[&Pod::new(1, 0)].seen;
    assert!(matches!(seen, plan::Seen::Unknown { .. }), "{seen:?}");
    let verdict = verdict(&fleet.resolved, &probed);
    assert!(!verdict.healthy && !verdict.serving);
}

/// The address of a pod that has gone may swallow what is sent to it instead of refusing it: Redis tries again and again, and
/// shows a link that is being tried as connected.
#[tokio::test]
async fn a_dead_node_whose_address_swallows_what_is_sent_is_forgotten_all_the_same() {
    let mut fleet = created(12, 3, 2).await;
    let mut holes = Vec::new();
    for shard in 0..3 {
        let mut server = fleet.servers.remove(&Pod::new(shard, 1)).unwrap();
        server.kill().await;
        holes.push(tokio::net::TcpListener::bind((server.address.ip(), 16379)).await.unwrap());
    }
    let mut primary = fleet.servers[&Pod::new(0, 0)].operator().await;
    let begun = Instant::now();
    // As it is shown: failed, and connected.
    while !primary.cluster_nodes().await.unwrap().iter().any(|node| node.flags.failed && node.connected) {
        assert!(begun.elapsed() < hung::change(), "{:?}", primary.cluster_nodes().await.unwrap());
        // Redis tells nobody when its table changes: it is asked again, and not so often that it does nothing else.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let desired = fleet.desired(3, 0);
    fleet.until_satisfied(&desired).await;
    assert_eq!(primary.cluster_nodes().await.unwrap().len(), 3);
}

/// Redis takes over its primary's new address from the primary's own ping only. A replica that learns it by gossip first
/// shows the new address in its table and connects to the old one for ever (mended in Valkey 8.1, valkey-io/valkey#965).
#[tokio::test]
async fn a_replica_that_connects_to_where_its_primary_was_is_sent_to_where_it_is() {
    let mut fleet = created(11, 3, 2).await;
    let (lead, follower) = (Pod::new(0, 0), Pod::new(0, 1));
    let [moved, follows_at] = [101, 102].map(|host| SocketAddr::new([127, 85, 11, host].into(), 6379));
    // A primary that gives nobody up never takes the replica's address from gossip, so it is not the one to call first. Nor do the others tell
    // it that the replica is given up.
    for (_, server) in fleet.servers.iter().filter(|(pod, _)| **pod != follower) {
        let longer = ["CONFIG", "SET", "cluster-node-timeout", "600000"];
        server.operator().await.call(&longer).await.unwrap();
    }
    for pod in [lead, follower] {
        fleet.servers.get_mut(&pod).unwrap().kill().await;
    }
    let server = fleet.servers.get_mut(&lead).unwrap();
    server.node_timeout_millis = 600_000;
    server.run_at(moved).await;
    fleet.servers.get_mut(&follower).unwrap().run_at(follows_at).await;
    let mut replica = fleet.servers[&follower].operator().await;
    let id = fleet.servers[&lead].id().await.to_string();
    let begun = Instant::now();
    loop {
        let table = replica.cluster_nodes().await.unwrap();
        let line = table.iter().find(|node| node.id.as_str() == id).unwrap();
        if line.address == Some(moved) && line.connected {
            break;
        }
        assert!(begun.elapsed() < hung::change(), "{line:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Redis looks after its replication once a second: it has its chances, and does not take them.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let info = replica.info(&["replication"]).await.unwrap();
    let seen = (info.get("master_host"), info.get("master_link_status"));
    assert_eq!(seen, (Some("127.85.11.1"), Some("down")), "this version of Redis finds its primary by itself");

    let desired = fleet.desired(3, 1);
    fleet.until_satisfied(&desired).await;
    let info = replica.info(&["replication"]).await.unwrap();
    let seen = (info.get("master_host"), info.get("master_link_status"));
    assert_eq!(seen, (Some("127.85.11.101"), Some("up")));
}

/// From the copied table, or from a ping of its twin, a node takes it that it is where the twin is. Nothing but its own ping tells it
/// otherwise, as in an introduction to itself; and as the twin may ping it at any moment, it is introduced as often as somebody looks.
async fn meets_itself(server: &Server) {
    let (ip, port) = (server.address.ip().to_string(), server.address.port().to_string());
    server.operator().await.call(&["CLUSTER", "MEET", &ip, &port]).await.unwrap();
}

/// Redis does not notice: measured before, the two were introduced to each other in every round, and the others' tables went from one address
/// to the other, for as long as both ran.
#[tokio::test]
async fn a_node_that_runs_twice_is_told_and_nothing_is_done_to_its_shard() {
    let mut fleet = created(41, 3, 2).await;
    let (pod, other) = (Pod::new(0, 0), Pod::new(0, 1));
    let id = fleet.servers[&pod].id().await;
    fleet.copy_volume(pod, other).await;
    for server in [pod, other].map(|pod| &fleet.servers[&pod]) {
        let begun = Instant::now();
        loop {
            meets_itself(server).await;
            let table = server.operator().await.cluster_nodes().await.unwrap();
            let mine = table.iter().find(|node| node.flags.myself).unwrap();
            assert!(mine.owns(0), "both own the same slots: {mine:?}");
            if mine.address == Some(server.address) {
                break;
            }
            assert!(begun.elapsed() < hung::change(), "{mine:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let [address, other_address] = [pod, other].map(|pod| fleet.servers[&pod].address.to_string());
    let told = plan::Refused::Twins { id, pod, address, other: Some(other), other_address, copied: None };
    let desired = fleet.desired(3, 1);
    let mut addresses = std::collections::BTreeSet::new();
    let mut witness = fleet.servers[&Pod::new(1, 0)].operator().await;
    let begun = Instant::now();
    let mut seen = false;
    while addresses.len() < 2 || !seen {
        for pod in [pod, other] {
            meets_itself(&fleet.servers[&pod]).await;
        }
        let round = fleet.round(&desired).await;
        // Whoever does not answer in time is still what it was.
        let is_told = |why: &plan::Refused| matches!(why, plan::Refused::Twins { id: twin, .. } if *twin == id);
        assert!(round.plan.steps.is_empty(), "{:?} {:?}", round.plan.steps, round.plan.refused);
        assert!(round.plan.refused.iter().any(is_told), "{:?} {:?}", round.plan.waiting, round.plan.refused);
        seen |= round.plan.refused == [told.clone()];
        let table = witness.cluster_nodes().await.unwrap();
        let line = table.iter().find(|node| node.id.as_str() == id.to_string()).unwrap();
        addresses.extend(line.address);
        assert!(begun.elapsed() < hung::change(), "{addresses:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // One look may find one of them silent.
    loop {
        let probed = fleet.look().await;
        let verdict = verdict(&fleet.resolved, &probed);
        assert!(!verdict.healthy);
        if verdict.twins == [(id, vec![pod, other])] {
            break;
        }
        assert!(begun.elapsed() < 2 * hung::change(), "{:?}", verdict.twins);
    }
    // As the sentence says.
    fleet.servers.get_mut(&other).unwrap().wipe().await;
    fleet.until_satisfied(&desired).await;
}
