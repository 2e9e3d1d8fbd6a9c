//! A move, and how far the replicas of both ends are: until they have heard of it, what has moved is in the memory of one primary only.

use std::time::{Duration, Instant};

use controller::execute::migrate::{Bucket, End, Moved};
use controller::lease::Guard;
use plan::{Pod, SlotSet};
use resp::Outcome;
use tests::fleet::Fleet;

use super::{HalfMoved, created, ends, moved, order, slots, until_moved};

const KEYS: usize = 3000;
/// What a move that begins sends in its first two exchanges: the second goes while the first is being acknowledged.
const TWO_EXCHANGES: usize = 64 + 80;

/// Two shards of two members, and the keys of the slots that move, which both members of the first shard have.
struct Pair {
    fleet: Fleet,
    slots: SlotSet,
    keys: Vec<String>,
}

impl Pair {
    async fn make(net: u8) -> Self {
        let (fleet, slots) = (created(net, 2, 2).await, slots(0, 999));
        let mut client = fleet.client();
        let keys = (0..).map(|n| format!("key{n}")).filter(|key| slots.contains(resp::slot::key_slot(key)));
        let keys: Vec<String> = keys.take(KEYS).collect();
        for key in &keys {
            assert!(matches!(client.set(key, "v").await, Outcome::Acked(_)));
        }
        for shard in 0..2 {
            // For whatever this connection did last, so for all of it.
            let mut primary = fleet.servers[&Pod::new(shard, 0)].operator().await;
            primary.call(&["WAIT", "1", "0"]).await.unwrap();
        }
        for server in fleet.servers.values() {
            written(&mut server.operator().await).await;
        }
        Self { fleet, slots, keys }
    }

    async fn moves(&self) -> Moved {
        self.moves_some(&self.slots).await
    }

    async fn moves_some(&self, some: &SlotSet) -> Moved {
        let (from, to) = ends(&self.fleet).await;
        let bucket = std::sync::Mutex::new(Bucket::default());
        moved(order(from, to, some), &Guard::always(), &bucket).await.0.unwrap()
    }

    /// Keys that a member has.
    async fn held_by(&self, pod: Pod) -> usize {
        let mut operator = self.fleet.servers[&pod].operator().await;
        usize::try_from(operator.call(&["DBSIZE"]).await.unwrap().integer().unwrap()).unwrap()
    }

    /// As the planner orders it; what it waits for.
    async fn step(&mut self, some: &SlotSet) -> Option<String> {
        let probed = self.fleet.look_at(&[Pod::new(0, 0), Pod::new(1, 0)]).await;
        let (from, to) = ends(&self.fleet).await;
        let who = |shard, end: End| plan::Who { pod: Pod::new(shard, 0), id: end.id };
        let step = plan::Step::Move { from: who(0, from), to: who(1, to), slots: some.clone() };
        let plan = plan::Plan { steps: vec![step], ..plan::Plan::default() };
        self.fleet.carry_out(&plan, &probed).await.unwrap().held
    }

    /// Moves until all of these are handed over.
    async fn finishes(&self, some: &SlotSet) {
        let (from, to) = ends(&self.fleet).await;
        until_moved(order(from, to, some), some, &std::sync::Mutex::new(Bucket::default())).await;
    }

    /// The primary of a shard dies with all that its replica has not read; that one takes its place. Keys that it has.
    async fn replace(&mut self, shard: u16) -> usize {
        let [lead, heir] = [0, 1].map(|ordinal| Pod::new(shard, ordinal));
        for pod in [lead, heir] {
            self.fleet.servers.get_mut(&pod).unwrap().kill().await;
        }
        self.fleet.servers.get_mut(&heir).unwrap().run().await;
        let mut replica = self.fleet.servers[&heir].operator().await;
        let begun = Instant::now();
        while replica.info(&["persistence"]).await.unwrap().flag("loading") != Some(false) {
            assert!(begun.elapsed() < hung::process(), "{heir} loads");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        replica.call(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await.unwrap();
        assert!(matches!(replica.role().await, Ok(resp::Role::Primary { .. })));
        self.held_by(heir).await
    }
}

/// Waits until a server's file has what its memory has: while one sync is under way Redis writes nothing, for two seconds.
async fn written(server: &mut resp::Connection) {
    let begun = Instant::now();
    let is_written = |info: &resp::Info| {
        ["aof_buffer_length", "aof_pending_bio_fsync"].iter().all(|name| info.number(name) == Some(0))
    };
    while !is_written(&server.info(&["persistence"]).await.unwrap()) {
        assert!(begun.elapsed() < hung::process(), "it does not write its file");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Before, all 3,000 were lost: the source's replica had deleted them, and the target's had not received them.
#[tokio::test]
async fn no_more_keys_move_than_replicas_have_acknowledged() {
    let mut pair = Pair::make(44).await;
    pair.fleet.servers[&Pod::new(1, 1)].hold();
    pair.moves().await;
    let kept = pair.held_by(Pod::new(0, 0)).await + pair.replace(1).await;
    let lost = pair.keys.len() - kept;
    assert!(lost <= TWO_EXCHANGES, "{lost} keys are lost");
}

/// Before, all 3,000 were there: what a later move replaces is then an older copy that came back, or the newer one.
#[tokio::test]
async fn no_more_keys_are_left_at_both_ends_than_replicas_have_acknowledged() {
    let mut pair = Pair::make(45).await;
    pair.fleet.servers[&Pod::new(0, 1)].hold();
    pair.moves().await;
    let held = pair.held_by(Pod::new(1, 0)).await + pair.replace(0).await;
    let twice = held - pair.keys.len();
    assert!(twice <= TWO_EXCHANGES, "{twice} keys are there twice");
}

#[tokio::test]
async fn a_held_move_tells_who_holds_it_and_goes_on_by_itself() {
    let mut pair = Pair::make(46).await;
    let (first, rest) = (slots(0, 499), slots(500, 999));
    let behind = Pod::new(1, 1);
    pair.fleet.servers[&behind].hold();
    let moved = pair.moves_some(&first).await;
    assert_eq!(moved.held.as_ref().unwrap().host, pair.fleet.servers[&behind].address.ip().to_string());
    // What the replica lacks is not handed over: only slots without keys were.
    let mut target = pair.fleet.servers[&Pod::new(1, 0)].operator().await;
    for slot in moved.slots.iter() {
        let keys = target.call(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).await.unwrap();
        assert_eq!(keys.integer(), Some(0), "{slot}");
    }
    // Who comes next, be it another controller, or is broken off in the middle, sends nothing.
    let there = pair.held_by(Pod::new(1, 0)).await;
    let why = pair.step(&first).await.unwrap();
    let waits = "slots wait on their way from 0-0 to 1-0, so that no copy misses what has moved: replica 1-1 has ";
    assert!(why.starts_with(waits), "{why}");
    if let Ok(again) = tokio::time::timeout(Duration::from_millis(200), pair.moves_some(&first)).await {
        // The machine stood still for as long as a move has patience.
        assert_eq!((again.held.map(|held| held.host), again.keys), (moved.held.map(|held| held.host), 0));
    }
    assert_eq!(pair.held_by(Pod::new(1, 0)).await, there);
    pair.fleet.servers[&behind].go_on();
    pair.finishes(&first).await;
    // Of the source the same; and who is gone is not waited for.
    let gone = Pod::new(0, 1);
    pair.fleet.servers[&gone].hold();
    assert!(pair.step(&rest).await.unwrap().contains("replica 0-1 has not acknowledged the last "));
    pair.fleet.servers.get_mut(&gone).unwrap().kill().await;
    pair.finishes(&rest).await;
    let mut client = pair.fleet.client();
    for key in &pair.keys {
        assert_eq!(client.get(key).await.unwrap().unwrap(), "v", "{key}");
    }
}

/// Before, its marks waited for the replica as well: the heir said of what had moved that it does not exist, and let clients make it anew.
#[tokio::test]
async fn a_move_that_is_held_marks_what_is_half_moved_first() {
    let mut half = HalfMoved::make(150).await;
    let [source, target, behind] =
        [(half.from, 0), (half.to, 0), (half.to, 1)].map(|(shard, ordinal)| Pod::new(shard, ordinal));
    half.replace(source.shard).await;
    half.fleet.servers.get_mut(&source).unwrap().run().await;
    let begun = Instant::now();
    while !matches!(half.fleet.servers[&source].operator().await.role().await, Ok(resp::Role::Replica { .. })) {
        assert!(begun.elapsed() < hung::change(), "the former primary follows nobody");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    half.fleet.servers[&behind].hold();
    let table = half.fleet.servers[&target].operator().await.cluster_nodes().await.unwrap();
    let owner = table.iter().find(|node| node.flags.myself).unwrap();
    let key = (0..).map(|n| format!("key{n}")).find(|key| owner.owns(resp::slot::key_slot(key))).unwrap();
    assert!(matches!(half.fleet.client().set(&key, "v").await, Outcome::Acked(_)));
    let held = half.moves_on().await.expect("it is moved");
    assert!(held.contains(&format!("replica {behind} has not acknowledged")), "{held}");
    let says = half.heir_says().await;
    assert!(says.contains(&format!("ASK {}", half.slot)), "{says}");
    half.fleet.servers[&behind].go_on();
    half.settles_with_all_keys().await;
}
