//! Libraries of functions belong to no slot: nothing but KUN brings them to a primary that comes later.

use std::time::{Duration, Instant};

use plan::{Pod, Step, Who};
use resp::{Command, Connection, Outcome, Reply};
use tests::fleet::{Fleet, Server};

use super::created;

/// More than one for each of three shards.
const KEYS: usize = 60;
const NEW: Pod = Pod::new(2, 0);

fn library(name: &str, answer: &str) -> String {
    format!("#!lua name={name}\nredis.register_function('{name}_answer', function(keys, args) return '{answer}' end)")
}

async fn load(at: &mut Connection, library: &str) {
    at.call(&["FUNCTION", "LOAD", library]).await.unwrap();
}

async fn replace(at: &mut Connection, library: &str) {
    at.call(&["FUNCTION", "LOAD", "REPLACE", library]).await.unwrap();
}

async fn code(at: &mut Connection, library: &str) -> String {
    let reply = at.call(&["FUNCTION", "LIST", "LIBRARYNAME", library, "WITHCODE"]).await.unwrap();
    let entry = reply.items().unwrap().first().unwrap().items().unwrap().to_vec();
    let pair = entry.chunks(2).find(|pair| pair[0].text() == Some("library_code")).unwrap();
    pair[1].text().unwrap().to_owned()
}

/// Two shards whose primaries have this library, and a third one without slots.
async fn about_to_grow(net: u8, library: &str) -> Fleet {
    let mut fleet = created(net, 2, 1).await;
    for shard in 0..2 {
        load(&mut fleet.servers[&Pod::new(shard, 0)].application().await, library).await;
    }
    fleet.add(net, NEW).await;
    fleet
}

/// Every key is answered like this, whoever has it.
async fn all_answer(fleet: &Fleet, function: &str, wanted: &str) {
    let mut client = fleet.client();
    for key in (0..KEYS).map(|n| format!("key{n}")) {
        let call = Command::new("FCALL").args([function, "1", &key]);
        let answer = client.execute(&key, &call).await;
        assert!(matches!(&answer, Outcome::Acked(Reply::Bulk(text)) if text == wanted), "{key}: {answer:?}");
    }
}

/// Rounds until a move fails for a library, and why.
async fn refusal(fleet: &mut Fleet) -> String {
    let (wanted, begun) = (fleet.desired(3, 0), Instant::now());
    loop {
        let round = fleet.round(&wanted).await;
        let mut failed = round.executed.failed.iter().map(|(_, error)| error.to_string());
        if let Some(why) = failed.find(|why| why.contains("function library")) {
            return why;
        }
        assert!(!round.plan.is_satisfied() && begun.elapsed() < hung::change(), "no move is refused: {round:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn owns_slots(fleet: &Fleet, pod: Pod) -> bool {
    let table = fleet.servers[&pod].operator().await.cluster_nodes().await.unwrap();
    (0..resp::slot::SLOTS).any(|slot| table.iter().any(|node| node.flags.myself && node.owns(slot)))
}

/// Redis answers before it has written, while the disk is busy.
async fn is_logged(server: &Server, word: &str) {
    let begun = Instant::now();
    while server.logged(word) == 0 {
        assert!(begun.elapsed() < hung::process(), "{word} is not written");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Before, what clients could call everywhere was unknown to a third of the slots as soon as they had moved.
#[tokio::test]
async fn a_new_shard_runs_the_functions_that_all_others_run() {
    let mut fleet = about_to_grow(81, &library("one", "as loaded")).await;
    let wanted = fleet.desired(3, 0);
    fleet.until_satisfied(&wanted).await;
    all_answer(&fleet, "one_answer", "as loaded").await;
}

/// Before, that a function of its name exists was taken for that the library exists: slots moved, and calls failed at a third of them.
#[tokio::test]
async fn no_slot_moves_to_who_cannot_load_a_library_of_its_giver() {
    let mut fleet = about_to_grow(82, &library("one", "as loaded")).await;
    let mut new = fleet.servers[&NEW].application().await;
    load(&mut new, &library("one", "another").replace("name=one", "name=mine")).await;
    let why = refusal(&mut fleet).await;
    let wanted = "2-0 gets no slots: it cannot load the function library one of ";
    assert!(why.starts_with(wanted) && why.contains("(ERR Function one_answer already exists)"), "{why}");
    assert!(
        why.ends_with("once nothing at 2-0 is in its way any more (FUNCTION DELETE), it is loaded and the slots move"),
        "{why}"
    );
    assert!(!owns_slots(&fleet, NEW).await);
    new.call(&["FUNCTION", "DELETE", "mine"]).await.unwrap();
    let wanted = fleet.desired(3, 0);
    fleet.until_satisfied(&wanted).await;
    all_answer(&fleet, "one_answer", "as loaded").await;
}

/// Rounds until the new shard is about to get its first slot: who gives it, and which. It is not begun.
async fn first_slot(fleet: &mut Fleet) -> (Who, u16) {
    let (wanted, begun) = (fleet.desired(3, 0), Instant::now());
    loop {
        let probed = fleet.look().await;
        let plan = plan::plan(&wanted, &probed.observed, &fleet.limits);
        for step in &plan.steps {
            if let Step::Move { from, to: Who { pod: NEW, .. }, slots } = step {
                return (*from, slots.iter().next().unwrap());
            }
        }
        assert!(begun.elapsed() < hung::change(), "nothing is to move: {plan:?}");
        fleet.execute(&plan, &probed).await;
    }
}

/// Before, the heir of who gave it was not marked: for as long as a library was in the way, what had moved was seen by nobody.
#[tokio::test]
async fn a_half_moved_slot_is_marked_although_a_library_is_refused() {
    let mut fleet = about_to_grow(83, &library("one", "as loaded")).await;
    let (from, slot) = first_slot(&mut fleet).await;
    load(&mut fleet.servers[&NEW].application().await, &library("one", "x").replace("name=one", "name=mine")).await;
    let mut new = fleet.servers[&NEW].operator().await;
    new.call(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &from.id.to_string()]).await.unwrap();
    let key = (0..).map(|n: u32| n.to_string()).find(|key| resp::slot::key_slot(key) == slot).unwrap();
    let moved = [Command::new("ASKING"), Command::new("SET").args([&key, "v"])];
    let moved = fleet.servers[&NEW].application().await.pipeline(&moved).await.unwrap();
    assert!(moved.iter().all(Reply::is_ok), "{moved:?}");
    assert_eq!(fleet.client().get(&key).await.unwrap(), None);
    refusal(&mut fleet).await;
    assert_eq!(fleet.client().get(&key).await.unwrap().as_deref(), Some(&b"v"[..]));
}

/// Before, a shard that had been away kept the code of its volume: a third of the keys was answered by it.
#[tokio::test]
async fn a_shard_that_comes_back_runs_the_code_of_those_with_slots() {
    let mut fleet = about_to_grow(84, &library("one", "new")).await;
    let mut away = fleet.servers[&NEW].application().await;
    load(&mut away, &library("one", "old")).await;
    load(&mut away, &library("own", "of nobody else")).await;
    let back = fleet.servers.get_mut(&NEW).unwrap();
    is_logged(back, "own_answer").await;
    back.kill().await;
    back.run().await;
    let wanted = fleet.desired(3, 0);
    fleet.until_satisfied(&wanted).await;
    all_answer(&fleet, "one_answer", "new").await;
    let mut back = fleet.servers[&NEW].application().await;
    assert_eq!(code(&mut back, "own").await, library("own", "of nobody else"));
    is_logged(&fleet.servers[&NEW], "REPLACE").await;
    let replaced: Vec<usize> = fleet.servers.values().map(|server| server.logged("REPLACE")).collect();
    assert_eq!(replaced, [0, 0, 1]);
}

/// Its owner is about to load the next release of it everywhere, and has begun with the new shard: that was acknowledged.
#[tokio::test]
async fn code_that_somebody_has_just_loaded_at_a_new_shard_stays() {
    let mut fleet = about_to_grow(85, &library("one", "old")).await;
    let mut new = fleet.servers[&NEW].application().await;
    load(&mut new, &library("one", "new")).await;
    let why = refusal(&mut fleet).await;
    let wanted = "2-0 gets no slots: its code of the function library one is not that of ";
    assert!(why.starts_with(wanted) && why.contains("since its server has started"), "{why}");
    assert_eq!(code(&mut new, "one").await, library("one", "new"));
    assert!(!owns_slots(&fleet, NEW).await);
    for shard in 0..2 {
        replace(&mut fleet.servers[&Pod::new(shard, 0)].application().await, &library("one", "new")).await;
    }
    let wanted = fleet.desired(3, 0);
    fleet.until_satisfied(&wanted).await;
    all_answer(&fleet, "one_answer", "new").await;
}

/// Whichever the new shard would get, it would be the wrong one for a part of its keys.
#[tokio::test]
async fn no_slot_moves_to_a_new_shard_while_owners_have_unlike_code() {
    let mut fleet = about_to_grow(86, &library("one", "old")).await;
    let mut first = fleet.servers[&Pod::new(0, 0)].application().await;
    replace(&mut first, &library("one", "new")).await;
    let why = refusal(&mut fleet).await;
    assert!(why.starts_with("2-0 gets no slots: "), "{why}");
    assert!(why.contains("0-0") && why.contains("1-0") && why.contains("load the same"), "{why}");
    assert!(!owns_slots(&fleet, NEW).await);
    replace(&mut fleet.servers[&Pod::new(1, 0)].application().await, &library("one", "new")).await;
    let wanted = fleet.desired(3, 0);
    fleet.until_satisfied(&wanted).await;
    all_answer(&fleet, "one_answer", "new").await;
}
