//! A move, and what has changed since it last looked: a command that waits at one end may be carried out when it is not true any more.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use controller::execute::migrate::{Bucket, End, Error, Move, Moved, migrate};
use controller::lease::Guard;
use controller::redis::Access;
use plan::{Pod, SlotSet};
use resp::Outcome;
use tests::fleet::{Fleet, OPERATOR, Server, is_of_the_wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{HalfMoved, created, end, ends, moved, order, slots};

/// A way to a server. Who sends a command of this name over it waits there until it is opened.
struct Gate {
    address: SocketAddr,
    reached: watch::Receiver<bool>,
    open: watch::Sender<bool>,
}

impl Gate {
    async fn before(server: SocketAddr, word: &'static str) -> Self {
        let listener = TcpListener::bind((server.ip(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let ((seen, reached), (open, opened)) = (watch::channel(false), watch::channel(false));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, word, seen.clone(), opened.clone()));
            }
        });
        Self { address, reached, open }
    }

    async fn is_reached(&mut self) {
        tokio::time::timeout(hung::change(), self.reached.wait_for(|seen| *seen)).await.expect("nobody comes").unwrap();
    }

    fn open(&self) {
        self.open.send(true).unwrap();
    }
}

/// Carries what one connection brings, both ways.
async fn pass(
    client: TcpStream,
    server: SocketAddr,
    word: &str,
    seen: watch::Sender<bool>,
    mut opened: watch::Receiver<bool>,
) {
    let server = TcpStream::connect(server).await.unwrap();
    let ((mut asks, mut hears), (mut answers, mut told)) = (client.into_split(), server.into_split());
    let back = tokio::spawn(async move { copy(&mut answers, &mut hears).await });
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = asks.read(&mut bytes).await {
        if bytes[..read].windows(word.len()).any(|part| part == word.as_bytes()) {
            seen.send_replace(true);
            drop(opened.wait_for(|open| *open).await);
        }
        if told.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
    back.abort();
}

/// Slots that a server owns by its own table, of these.
async fn owned(fleet: &Fleet, pod: Pod, some: &SlotSet) -> Vec<u16> {
    let table = fleet.servers[&pod].operator().await.cluster_nodes().await.unwrap();
    let me = table.into_iter().find(|node| node.flags.myself).unwrap();
    some.iter().filter(|slot| me.owns(*slot)).collect()
}

/// Moves slots through a gate at the source; what is done meanwhile is done before the command passes. Begun again until somebody has come to
/// the gate: where the machine stands still, a question breaks off before that, or a replica is waited for.
async fn moves_meanwhile(
    (from, to): (End, End),
    some: &SlotSet,
    word: &'static str,
    meanwhile: impl Future<Output = ()>,
) -> Result<Moved, Error> {
    let mut gate = Gate::before(from.address, word).await;
    let (access, guard, bucket) = (Access::new(OPERATOR), Guard::always(), Mutex::new(Bucket::default()));
    let through = order(End { id: from.id, address: gate.address }, to, some);
    let (reached, begun) = (gate.reached.clone(), Instant::now());
    let moving = async {
        loop {
            let moved = migrate(through, &access, &guard, &bucket).await;
            if *reached.borrow() {
                return moved;
            }
            assert!(begun.elapsed() < hung::change(), "nobody comes: {moved:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let blow = async {
        gate.is_reached().await;
        meanwhile.await;
        gate.open();
    };
    tokio::join!(moving, blow).0
}

/// Whether a move went another way than it is sent here, as an end stood still: it was silent for too long, or had not heard yet that a connection
/// has ended.
fn stood_still(moved: &Result<Moved, Error>) -> bool {
    match moved {
        Err(Error::Node(node)) => is_of_the_wire(node),
        Err(Error::Precondition(why)) => why.ends_with("is still open at the target"),
        Ok(_) | Err(Error::NotLeading | Error::Migrate { .. } | Error::Library { .. }) => false,
    }
}

/// Before, the target took the slots: a replica has no key of an empty slot, and its new primary had been written to meanwhile.
#[tokio::test]
async fn a_source_that_has_handed_its_role_over_hands_no_slot_over() {
    let some = slots(0, 9);
    for net in [70, 77, 78] {
        let fleet = created(net, 2, 2).await;
        let handed_over = async {
            fleet.takes_over(Pod::new(0, 1)).await;
            let (mut source, begun) = (fleet.servers[&Pod::new(0, 0)].operator().await, Instant::now());
            while matches!(source.role().await, Ok(resp::Role::Primary { .. })) {
                assert!(begun.elapsed() < hung::change(), "the role stays where it is");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let moved = moves_meanwhile(ends(&fleet).await, &some, "COUNTKEYSINSLOT", handed_over).await;
        assert_eq!(owned(&fleet, Pod::new(1, 0), &some).await, Vec::<u16>::new());
        if !stood_still(&moved) {
            let why = "not moved: the source is not a primary".to_owned();
            assert_eq!(moved.map_err(|error| error.to_string()), Err(why));
            return;
        }
    }
    panic!("an end is silent at each try");
}

/// A way to a server that takes each piece so long.
async fn slowed(server: SocketAddr, pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind((server.ip(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let server = TcpStream::connect(server).await.unwrap();
                let ((mut asks, mut hears), (mut answers, mut told)) = (client.into_split(), server.into_split());
                let back = tokio::spawn(async move { copy(&mut answers, &mut hears).await });
                let mut bytes = vec![0; 1 << 16];
                while let Ok(read @ 1..) = asks.read(&mut bytes).await {
                    tokio::time::sleep(pause).await;
                    if told.write_all(&bytes[..read]).await.is_err() {
                        break;
                    }
                }
                back.abort();
            });
        }
    });
    address
}

/// Before, answers of both ends one after the other had to come within half a node timeout, and slots that were empty stayed half moved.
#[tokio::test]
async fn ends_that_are_slow_for_a_short_node_timeout_hand_slots_over() {
    let fleet = created(76, 2, 1).await;
    let ((from, to), some) = (ends(&fleet).await, slots(0, 9));
    let pause = Duration::from_millis(150);
    let from = End { address: slowed(from.address, pause).await, ..from };
    let to = End { address: slowed(to.address, pause).await, ..to };
    let order = Move { node_timeout: Duration::from_millis(500), ..order(from, to, &some) };
    let (access, bucket, begun) = (Access::new(OPERATOR), Mutex::new(Bucket::default()), Instant::now());
    loop {
        match migrate(order, &access, &Guard::always(), &bucket).await {
            Ok(moved) if moved.slots == some => break,
            other => assert!(begun.elapsed() < hung::change(), "{other:?}"),
        }
    }
    assert_eq!(owned(&fleet, Pod::new(1, 0), &some).await, some.iter().collect::<Vec<_>>());
}

/// A primary that stands still with a command that nobody has read yet; its replica has its role, and a newer copy of the command's key.
struct Stopped {
    half: HalfMoved,
    key: String,
    /// Whoever had sent it is still there.
    _sender: resp::Connection,
}

impl Stopped {
    async fn make(net: u8) -> Self {
        let mut half = HalfMoved::make(net).await;
        half.fleet.look_at_all().await;
        let [lead, heir, target] = [(half.from, 0), (half.from, 1), (half.to, 0)]
            .map(|(shard, ordinal)| &half.fleet.servers[&Pod::new(shard, ordinal)]);
        let (mut sender, key, stay) = (lead.operator().await, half.keys[1].clone(), Duration::from_millis(100));
        let mut successor = heir.operator().await;
        // It takes over when it is told to, and not by votes where the machine stands still.
        successor.call(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]).await.unwrap();
        lead.hold();
        let (ip, port) = (target.address.ip().to_string(), target.address.port().to_string());
        let words =
            ["MIGRATE", &ip, &port, "", "0", "5000", "REPLACE", "AUTH2", "kun-operator", OPERATOR, "KEYS", &key];
        assert!(tokio::time::timeout(stay, sender.call(&words)).await.is_err(), "who stands still does not answer");
        successor.call(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await.unwrap();
        let (mut client, begun) = (heir.application().await, Instant::now());
        while let Err(error) = client.call(&["SET", &key, "newer"]).await {
            assert!(begun.elapsed() < hung::change(), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { half, key, _sender: sender }
    }
}

/// Before, the slot was moved and handed over, and as it woke up the former primary put its older copy over what clients had written since.
#[tokio::test]
async fn no_slot_goes_on_while_its_former_owner_may_still_send_keys() {
    let mut stopped = Stopped::make(71).await;
    let held = stopped.half.moves_on().await.expect("it is moved");
    let HalfMoved { from, to, slot, .. } = stopped.half;
    let [pod, from_heir, to_target] = [Pod::new(from, 0), Pod::new(from, 1), Pod::new(to, 0)];
    assert_eq!(held, plan::Waiting::Former { pod, from: from_heir, to: to_target }.to_string());
    // What had moved is served meanwhile: the heir sends there whoever asks for it.
    let says = stopped.half.heir_says().await;
    assert!(says.contains(&format!("ASK {slot}")), "{says}");
    let mut target = stopped.half.fleet.servers[&Pod::new(to, 0)].application().await;
    let get = [resp::Command::new("ASKING"), resp::Command::new("GET").arg(&stopped.half.keys[0])];
    assert_eq!(target.pipeline(&get).await.unwrap()[1].text(), Some("v"));
    assert_eq!(owned(&stopped.half.fleet, Pod::new(from, 1), &slots(slot, slot)).await, [slot]);
    stopped.half.fleet.servers[&Pod::new(from, 0)].go_on();
    let desired = stopped.half.fleet.desired(3, 1);
    stopped.half.fleet.until_satisfied(&desired).await;
    assert_eq!(owned(&stopped.half.fleet, Pod::new(to, 0), &slots(slot, slot)).await, [slot]);
    let mut client = stopped.half.fleet.client();
    assert_eq!(client.get(&stopped.key).await.unwrap().unwrap(), "newer");
}

/// Before, it woke up with the epoch of its heir, and in half of the cases took all slots of the shard back, with the data of before.
#[tokio::test]
async fn a_receiver_that_wakes_up_with_a_new_epoch_takes_nothing_back() {
    for net in 152..156 {
        if takes_nothing_back(net).await {
            return;
        }
    }
    panic!("it takes its shard back each time");
}

/// `false`: it has read what a third node knew of epochs before what it had been told, and what its heir had sent only after that, and so got an epoch above
/// the one that its heir was raised to. Nothing of ours is in between (docs/promises.md).
async fn takes_nothing_back(net: u8) -> bool {
    let mut half = HalfMoved::make(net).await;
    let [lead, heir, third] =
        [(half.to, 0), (half.to, 1), (3 - half.from - half.to, 0)].map(|(shard, ordinal)| Pod::new(shard, ordinal));
    half.sends(1).await;
    half.fleet.look_at_all().await;
    // It has not the newest epoch, and knows that.
    half.fleet.servers[&third].operator().await.call(&["CLUSTER", "BUMPEPOCH"]).await.unwrap();
    let (mut sender, begun) = (half.fleet.servers[&lead].operator().await, Instant::now());
    while sender.cluster_info().await.is_ok_and(|view| view.current_epoch <= view.my_epoch) {
        assert!(begun.elapsed() < hung::change(), "it hears of no newer epoch");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let me = sender.cluster_nodes().await.unwrap().into_iter().find(|node| node.flags.myself).unwrap();
    let key = (0..).map(|n| format!("key{n}")).find(|key| me.owns(resp::slot::key_slot(key))).unwrap();
    let mut successor = half.fleet.servers[&heir].operator().await;
    successor.call(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]).await.unwrap();
    half.fleet.servers[&lead].hold();
    let told = ["CLUSTER", "SETSLOT", &half.slot.to_string(), "NODE", me.id.as_str()];
    let told = tokio::time::timeout(Duration::from_millis(100), sender.call(&told)).await;
    assert!(told.is_err(), "who stands still does not answer");
    successor.call(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await.unwrap();
    let elected = successor.cluster_info().await.unwrap().my_epoch;
    let (mut client, begun) = (half.fleet.servers[&heir].application().await, Instant::now());
    while let Err(error) = client.call(&["SET", &key, "newer"]).await {
        assert!(begun.elapsed() < hung::change(), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (desired, one, begun) = (half.fleet.desired(3, 1), slots(half.slot, half.slot), Instant::now());
    let raised = loop {
        let round = half.fleet.round(&desired).await;
        let epoch = successor.cluster_info().await.unwrap().my_epoch;
        if epoch > elected && owned(&half.fleet, heir, &one).await == [half.slot] {
            break epoch;
        }
        assert!(begun.elapsed() < hung::process(), "{epoch} after {elected}: {:?}", round.plan);
    };
    half.fleet.servers[&lead].go_on();
    half.fleet.until_satisfied(&desired).await;
    if !matches!(successor.role().await, Ok(resp::Role::Primary { .. })) {
        let mut former = half.fleet.servers[&lead].operator().await;
        let epoch = former.cluster_info().await.unwrap().my_epoch;
        assert!(epoch > raised, "{epoch} is not above {raised}, and it has taken its shard back");
        return false;
    }
    assert_eq!(half.fleet.client().get(&key).await.unwrap().unwrap(), "newer");
    drop(sender);
    half.settles_with_all_keys().await;
    true
}

/// Before, the source told whoever had taken the target's address the password of the controller.
#[tokio::test]
async fn no_password_goes_to_who_has_taken_the_targets_address() {
    let mut fleet = created(72, 2, 1).await;
    let (from, to) = ends(&fleet).await;
    let key = (0..).map(|n| format!("key{n}")).find(|key| resp::slot::key_slot(key) < 8192).unwrap();
    assert!(matches!(fleet.client().set(&key, "v").await, Outcome::Acked(_)));
    let (some, heard) =
        (slots(resp::slot::key_slot(&key), resp::slot::key_slot(&key)), Arc::new(Mutex::new(Vec::new())));
    let taken = async {
        fleet.servers.get_mut(&Pod::new(1, 0)).unwrap().kill().await;
        let (listener, heard) = (TcpListener::bind(to.address).await.unwrap(), Arc::clone(&heard));
        tokio::spawn(async move {
            while let Ok((mut somebody, _)) = listener.accept().await {
                let mut words = vec![0; 1 << 10];
                let read = somebody.read(&mut words).await.unwrap_or(0);
                heard.lock().unwrap().push(String::from_utf8_lossy(&words[..read]).into_owned());
            }
        });
    };
    let moved = moves_meanwhile((from, to), &some, "GETKEYSINSLOT", taken).await;
    assert!(matches!(moved, Err(Error::Node(_))), "{moved:?}");
    assert_eq!(*heard.lock().unwrap(), Vec::<String>::new());
}

/// As an interrupted MIGRATE leaves it: a key at the source, and an older copy of it at the target.
struct Leftover {
    fleet: Fleet,
    slot: u16,
    from: End,
    to: End,
}

impl Leftover {
    const KEY: &str = "leftover";

    async fn make(net: u8) -> Self {
        let fleet = created(net, 2, 1).await;
        let (slot, (from, to), mut client) = (resp::slot::key_slot(Self::KEY), ends(&fleet).await, fleet.client());
        let (from, to) = if slot < 8192 { (from, to) } else { (to, from) };
        assert!(matches!(client.set(Self::KEY, "old").await, Outcome::Acked(_)));
        let leftover = Self { fleet, slot, from, to };
        let (mut source, mut target) = (leftover.at(from).operator().await, leftover.at(to).operator().await);
        let number = slot.to_string();
        target.call(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &from.id.to_string()]).await.unwrap();
        source.call(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &to.id.to_string()]).await.unwrap();
        let (ip, port) = (to.address.ip().to_string(), to.address.port().to_string());
        let copy =
            ["MIGRATE", &ip, &port, "", "0", "60000", "COPY", "AUTH2", "kun-operator", OPERATOR, "KEYS", Self::KEY];
        source.call(&copy).await.unwrap();
        // Its connection is kept for ten seconds, and is the one that a move uses.
        assert!(matches!(client.set(Self::KEY, "new").await, Outcome::Acked(_)));
        leftover
    }

    fn at(&self, end: End) -> &Server {
        self.fleet.servers.values().find(|server| server.address == end.address).unwrap()
    }

    fn one(&self) -> SlotSet {
        slots(self.slot, self.slot)
    }

    /// What the target has.
    async fn there(&self) -> Option<String> {
        let mut target = self.at(self.to).application().await;
        let get = [resp::Command::new("ASKING"), resp::Command::new("GET").arg(Self::KEY)];
        target.pipeline(&get).await.unwrap()[1].text().map(str::to_owned)
    }

    async fn moved(&self) -> (Result<Moved, Error>, bool) {
        moved(order(self.from, self.to, &self.one()), &Guard::always(), &Mutex::new(Bucket::default())).await
    }
}

#[tokio::test]
async fn a_leftover_of_an_interrupted_migrate_is_replaced_by_the_newer_copy_at_the_source() {
    let leftover = Leftover::make(4).await;
    let (moved, at_one_go) = leftover.moved().await;
    let moved = moved.unwrap();
    assert_eq!(moved.slots, leftover.one());
    if at_one_go {
        assert_eq!((moved.keys, moved.replaced), (1, 1));
    }
    assert_eq!(leftover.there().await.as_deref(), Some("new"));
}

/// Before, what had been asked when the move began was taken for true, however long ago that was.
#[tokio::test]
async fn no_copy_is_replaced_once_its_slot_is_not_on_its_way_any_more() {
    for net in [73, 79, 80] {
        let leftover = Leftover::make(net).await;
        let settled = async {
            let mut source = leftover.at(leftover.from).operator().await;
            source.call(&["CLUSTER", "SETSLOT", &leftover.slot.to_string(), "STABLE"]).await.unwrap();
        };
        let moved = moves_meanwhile((leftover.from, leftover.to), &leftover.one(), "MIGRATE", settled).await;
        assert_eq!(leftover.there().await.as_deref(), Some("old"));
        if !stood_still(&moved) {
            let why = format!(
                "not moved: slot {} is not on its way any more: no copy of its keys is replaced",
                leftover.slot
            );
            assert_eq!(moved.map_err(|error| error.to_string()), Err(why));
            return;
        }
    }
    panic!("an end is silent at each try");
}

/// What the source sent over a connection that it has given up, the target carries out whenever it arrives.
#[tokio::test]
async fn nothing_is_sent_again_while_the_first_attempt_may_still_arrive() {
    let leftover = Leftover::make(74).await;
    let credentials = resp::Credentials::new("kun-operator", OPERATOR);
    let former = resp::Options::new(leftover.to.address).credentials(credentials).source(leftover.from.address.ip());
    let former = resp::Connection::open(&former).await.unwrap();
    let why = "not moved: a connection over which the source has sent keys before is still open at the target";
    assert_eq!(leftover.moved().await.0.map_err(|error| error.to_string()), Err(why.to_owned()));
    assert_eq!(leftover.there().await.as_deref(), Some("old"));
    drop(former);
    assert_eq!(leftover.moved().await.0.unwrap().slots, leftover.one());
    assert_eq!(leftover.there().await.as_deref(), Some("new"));
}

/// Before, only a second attempt of the same move asked for it: a key that the next move sent, and a client deleted at the target, came back.
#[tokio::test]
async fn no_move_begins_while_keys_of_the_one_before_may_still_arrive() {
    let half = HalfMoved::prepare(75).await;
    let [source, target] = [half.from, half.to].map(|shard| &half.fleet.servers[&Pod::new(shard, 0)]);
    let (from, to, some) = (end(source).await, end(target).await, slots(half.slot, half.slot));
    let number = half.slot.to_string();
    let (mut giver, mut taker) = (source.operator().await, target.operator().await);
    taker.call(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &from.id.to_string()]).await.unwrap();
    giver.call(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &to.id.to_string()]).await.unwrap();
    let credentials = resp::Credentials::new("kun-operator", OPERATOR);
    let given_up = resp::Options::new(to.address).credentials(credentials).source(from.address.ip());
    let given_up = resp::Connection::open(&given_up).await.unwrap();
    let (guard, bucket) = (Guard::always(), Mutex::new(Bucket::default()));
    let of = || moved(order(from, to, &some), &guard, &bucket);
    let why = "not moved: a connection over which the source has sent keys before is still open at the target";
    assert_eq!(of().await.0.map_err(|error| error.to_string()), Err(why.to_owned()));
    let count = taker.call(&["CLUSTER", "COUNTKEYSINSLOT", &number]).await.unwrap();
    assert_eq!(count.integer(), Some(0), "something has gone");
    drop(given_up);
    assert_eq!(of().await.0.unwrap().slots, some);
}
