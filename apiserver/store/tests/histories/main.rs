//! Histories of concurrent clients, recorded on every back end and judged afterwards: the nine properties of watches, and
//! linearizability of every object. `KUN_SOAK` multiplies them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod bite;
#[path = "../robust/history/history.rs"]
mod history;
mod record;
#[path = "../etcd/server.rs"]
mod server;
#[path = "../robust/tally.rs"]
mod tally;

use std::sync::Arc;

use store::{Embedded, EmbeddedOptions, Etcd, EtcdOptions, Memory};

use self::tally::soak;

/// Histories on each back end; `KUN_SOAK` multiplies them.
const HISTORIES: usize = 3;

/// What is wrong, if anything is; and the history must be one worth the name.
fn judge(seed: u64, history: &history::History) {
    let violations: Vec<String> = history::check(history).iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "seed {seed:#x}:\n{}", violations.join("\n"));
    let records = history.watches.iter().flat_map(|watch| &watch.records);
    let events = records.filter(|record| matches!(record, history::Record::Events(_))).count();
    let refused = history.requests.iter().filter(|r| matches!(r.answer, history::Answer::Refused(_))).count();
    assert!(
        history.requests.len() > 200 && events > 100 && refused > 5,
        "{} {events} {refused}",
        history.requests.len()
    );
}

fn seeds() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0x0bee), |seed| Some(tally::next_random(*seed))).skip(1).take(HISTORIES * soak())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_on_memory_keep_every_property() {
    for seed in seeds() {
        judge(seed, &record::record(Arc::new(Memory::default()), seed).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_on_the_embedded_store_keep_every_property() {
    for seed in seeds() {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(&directory.path().join("store"), EmbeddedOptions::default()).unwrap();
        judge(seed, &record::record(Arc::new(store), seed).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_on_etcd_keep_every_property() {
    let Some(binary) = server::binary() else { return };
    let server = server::Server::fast(binary);
    for seed in seeds() {
        // Each finds an empty store, under a prefix of its own.
        let prefix = format!("/history-{seed}");
        let options = EtcdOptions { compact_every: None, prefix, ..EtcdOptions::new(vec![server.url()]) };
        judge(seed, &record::record(Arc::new(Etcd::connect(options).await.unwrap()), seed).await);
    }
}
