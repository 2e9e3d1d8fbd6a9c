//! Libraries of functions belong to no slot: nothing but KUN brings them to a primary that comes later.

use plan::Pod;
use resp::{Command, Connection, Outcome, Reply};

use super::created;

const NET: u8 = 77;
/// More than one for each of three shards.
const KEYS: usize = 60;

fn library(name: &str, answer: &str) -> String {
    format!("#!lua name={name}\nredis.register_function('{name}_answer', function(keys, args) return '{answer}' end)")
}

async fn load(at: &mut Connection, library: &str) {
    at.call(&["FUNCTION", "LOAD", library]).await.unwrap();
}

async fn code(at: &mut Connection, library: &str) -> String {
    let reply = at.call(&["FUNCTION", "LIST", "LIBRARYNAME", library, "WITHCODE"]).await.unwrap();
    let entry = reply.items().unwrap().first().unwrap().items().unwrap().to_vec();
    let pair = entry.chunks(2).find(|pair| pair[0].text() == Some("library_code")).unwrap();
    pair[1].text().unwrap().to_owned()
}

/// Before, what clients could call everywhere was unknown to a third of the slots as soon as they had moved.
#[tokio::test]
async fn a_new_shard_runs_the_functions_that_all_others_run() {
    let mut fleet = created(NET, 2, 1).await;
    for shard in 0..2 {
        let mut there = fleet.servers[&Pod::new(shard, 0)].application().await;
        load(&mut there, &library("one", "as loaded")).await;
        load(&mut there, &library("two", "old")).await;
    }
    fleet.add(NET, Pod::new(2, 0)).await;
    // Its owner is about to load the next release of it, and has begun with the new one.
    let mut new = fleet.servers[&Pod::new(2, 0)].application().await;
    load(&mut new, &library("two", "new")).await;
    let wanted = fleet.desired(3, 0);
    fleet.until_satisfied(&wanted).await;
    let mut client = fleet.client();
    for key in (0..KEYS).map(|n| format!("key{n}")) {
        let call = Command::new("FCALL").args(["one_answer", "1", &key]);
        let answer = client.execute(&key, &call).await;
        assert!(matches!(&answer, Outcome::Acked(Reply::Bulk(text)) if text == "as loaded"), "{key}: {answer:?}");
    }
    assert_eq!(code(&mut new, "two").await, library("two", "new"));
    let mut old = fleet.servers[&Pod::new(0, 0)].application().await;
    assert_eq!(code(&mut old, "two").await, library("two", "old"));
}
