//! The first slot of a new shard, whose primary is lost in the middle of it.

use std::time::{Duration, Instant};

use plan::{Desired, Hold, Pod, SlotSet, Step, Who};
use tests::fleet::Fleet;

use super::HalfMoved;

const RECEIVER: Pod = Pod { shard: 3, ordinal: 0 };
const COPY: Pod = Pod { shard: 3, ordinal: 1 };

async fn owns(fleet: &Fleet, pod: Pod, slot: u16) -> bool {
    let table = fleet.servers[&pod].operator().await.cluster_nodes().await.unwrap();
    table.iter().any(|node| node.flags.myself && node.owns(slot))
}

/// A fourth shard without slots, whose replica has its copy. All of them agree.
async fn with_receiver(net: u8) -> (HalfMoved, Desired) {
    let mut half = HalfMoved::prepare(net).await;
    half.to = RECEIVER.shard;
    for pod in [RECEIVER, COPY] {
        half.fleet.add(net, pod).await;
    }
    let desired = Desired { hold: Some(Hold::Paused), ..half.fleet.desired(4, 1) };
    let begun = Instant::now();
    let waits_for_us = |plan: &plan::Plan| plan.waiting.iter().all(|why| matches!(why, plan::Waiting::Hold { .. }));
    loop {
        let plan = half.fleet.round(&desired).await.plan;
        if plan.steps.is_empty() && waits_for_us(&plan) {
            return (half, desired);
        }
        assert!(begun.elapsed() < hung::change(), "{plan:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Measured before: as soon as it was a primary it was sent its first slot, and whatever had arrived until its replica had its copy was lost with it.
#[tokio::test]
async fn a_first_slot_waits_for_a_replica_where_no_disk_keeps_it() {
    let (mut half, _) = with_receiver(89).await;
    let [giver, receiver] = half.ends();
    // It follows, and is not let in.
    let mut copy = half.fleet.servers[&COPY].operator().await;
    let password = copy.config_get(&["masterauth"]).await.unwrap().remove("masterauth").unwrap();
    copy.config_set("masterauth", "wrong").await.unwrap();
    for primary in [giver, receiver] {
        let id = half.fleet.servers[&primary].id().await.to_string();
        copy.call(&["CLUSTER", "REPLICATE", &id]).await.unwrap();
    }
    // Nobody told the receiver: it hears of that with a later ping.
    let seen_at_once = half.fleet.look_at(&[giver, receiver, COPY]).await;
    let [from, to] = [
        Who { pod: giver, id: half.fleet.servers[&giver].id().await },
        Who { pod: receiver, id: half.fleet.servers[&receiver].id().await },
    ];
    let step = Step::Move { from, to, slots: SlotSet::range(half.slot, half.slot) };
    let plan = plan::Plan { steps: vec![step], ..plan::Plan::default() };
    let at_once = half.fleet.carry_out(&plan, &seen_at_once).await.unwrap();
    follows_unlinked(&half.fleet, receiver).await;
    let probed = half.fleet.look_at(&[giver, receiver]).await;
    let done = half.fleet.carry_out(&plan, &probed).await.unwrap();
    let why = format!(
        "slots wait on their way from {from} to {to}: what moves would be in the memory of {to} alone, which keeps not every write on disk, and none of \
         its replicas is in sync yet; they are waited for as long as they are there: kubectl delete pod of a replica that does not come into sync helps"
    );
    for done in [at_once, done] {
        assert_eq!((done.held, done.keys, done.slots), (Some(why.clone()), 0, 0));
    }
    // Nothing is half moved: no client is sent there, and nothing else has to wait.
    for pod in [giver, receiver] {
        let table = half.fleet.servers[&pod].operator().await.cluster_nodes().await.unwrap();
        let mine = table.into_iter().find(|node| node.flags.myself).unwrap();
        assert!(mine.migrating.is_empty() && mine.importing.is_empty(), "{mine:?}");
    }
    copy.config_set("masterauth", &password).await.unwrap();
    let begun = Instant::now();
    while !owns(&half.fleet, receiver, half.slot).await {
        let probed = half.fleet.look_at(&[giver, receiver]).await;
        let round = half.fleet.carry_out(&plan, &probed).await;
        assert!(begun.elapsed() < hung::change(), "{round:?}");
    }
    assert_eq!(copy.call(&["DBSIZE"]).await.unwrap().integer(), Some(40));
}

/// Its primary has heard that the copy follows it, which has no link to it.
async fn follows_unlinked(fleet: &Fleet, primary: Pod) {
    let (begun, copy) = (Instant::now(), fleet.servers[&COPY].id().await.to_string());
    let mut target = fleet.servers[&primary].operator().await;
    loop {
        let table = target.cluster_nodes().await.unwrap();
        let me = table.iter().find(|node| node.flags.myself).map(|node| node.id.clone());
        let follows = table.iter().any(|node| node.id.as_str() == copy && node.primary.is_some() && node.primary == me);
        if follows && target.info(&["replication"]).await.unwrap().get("connected_slaves") == Some("0") {
            return;
        }
        assert!(begun.elapsed() < hung::change(), "it is linked, or does not follow");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Only real servers show that the replica of a primary without slots takes over, and that its slot goes on to it. Before, the giver's mark was
/// cleared and the replica copied the blank member: what had moved was nowhere any more.
#[tokio::test]
async fn a_first_slot_goes_on_to_the_copy_of_a_receiver_that_came_back_blank() {
    let (mut half, desired) = with_receiver(84).await;
    half.begin().await;
    let [giver, copy] = [Pod::new(half.from, 0), COPY];
    let [giver, copy] = [(giver, &half.fleet.servers[&giver]), (copy, &half.fleet.servers[&copy])];
    let [giver, copy] = [Who { pod: giver.0, id: giver.1.id().await }, Who { pod: copy.0, id: copy.1.id().await }];
    half.fleet.look_at_all().await;
    half.fleet.servers.get_mut(&RECEIVER).unwrap().wipe_closed().await;
    let receiver = Who { pod: RECEIVER, id: half.fleet.servers[&RECEIVER].id().await };
    // Whatever was planned on a look from before is asked again.
    knows(&half.fleet, receiver).await;
    let probed = half.fleet.look_at_all().await;
    let slots = SlotSet::range(half.slot, half.slot);
    let table = [
        (
            Step::Stabilise { node: giver, slots },
            format!("{giver} owns slot {}, but 3-1 holds 20 keys of it, and whom it follows is gone", half.slot),
        ),
        (
            Step::Replicate { node: copy, primary: receiver },
            "3-1 holds 20 keys, which may be nowhere else: whom it follows is gone, and 3-0 holds nothing".to_owned(),
        ),
    ];
    for (step, why) in table {
        let plan = plan::Plan { steps: vec![step], ..plan::Plan::default() };
        assert_eq!(half.fleet.carry_out(&plan, &probed).await.map(drop), Err(why));
    }
    let begun = Instant::now();
    while !owns(&half.fleet, COPY, half.slot).await {
        let round = half.fleet.round(&desired).await;
        assert!(begun.elapsed() < hung::change(), "{round:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut client = half.fleet.client();
    for key in &half.keys {
        assert!(client.get(key).await.unwrap().is_some(), "{key}");
    }
}

/// Before, the heir said that what had moved does not exist, for as long as the receiver was away: nobody owns a slot in its shard, so nobody there
/// took its place.
#[tokio::test]
async fn the_heir_of_a_giver_is_told_of_a_receiver_without_slots_that_is_away() {
    let (mut half, desired) = with_receiver(152).await;
    let desired = Desired { has_volumes: true, ..desired };
    half.begin().await;
    half.fleet.look_at_all().await;
    half.fleet.servers.get_mut(&RECEIVER).unwrap().kill().await;
    half.replace(half.from).await;
    let begun = Instant::now();
    while !half.heir_says().await.contains(&format!("ASK {}", half.slot)) {
        let round = half.fleet.round(&desired).await;
        assert!(begun.elapsed() < hung::change(), "{round:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for pod in half.ends() {
        half.fleet.servers.get_mut(&pod).unwrap().run().await;
    }
    let begun = Instant::now();
    while !owns(&half.fleet, RECEIVER, half.slot).await {
        let round = half.fleet.round(&desired).await;
        assert!(begun.elapsed() < hung::change(), "{round:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut client = half.fleet.client();
    for key in &half.keys {
        assert_eq!(client.get(key).await.unwrap().unwrap(), "v", "{key}");
    }
}

/// The copy has heard of whoever is at the place of its primary.
async fn knows(fleet: &Fleet, receiver: Who) {
    let (begun, address) = (Instant::now(), fleet.servers[&RECEIVER].address);
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let mut copy = fleet.servers[&COPY].operator().await;
    copy.call(&["CLUSTER", "MEET", &ip, &port]).await.unwrap();
    let is_it = |node: &resp::Node| node.id.as_str() == receiver.id.to_string() && !node.flags.handshake;
    while !copy.cluster_nodes().await.unwrap().iter().any(is_it) {
        assert!(begun.elapsed() < hung::change(), "they do not meet");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
