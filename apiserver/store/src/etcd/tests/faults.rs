//! etcd that dies, stands still, or forgets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

use super::clock::{Clock, breathe};
use super::*;
use crate::cache::{self, Cache, Describe, Options, Paths};

/// How a write of a writer's counter ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Unclear,
    NotDone,
}

/// Raises the counter of one key until a write does not succeed; returns the last value tried, and how that ended.
async fn count_up(
    store: Arc<Etcd>,
    key: Key,
    mut seen: Option<(u64, Revision)>,
    written: Arc<AtomicU64>,
) -> (Key, u64, Ended, Option<(u64, Revision)>) {
    loop {
        let count = seen.map_or(0, |(count, _)| count + 1);
        let value = Bytes::from(count.to_string());
        let write = match seen {
            None => Write::create(key.clone(), value),
            Some((_, revision)) => Write::update(key.clone(), revision, value),
        };
        match store.write(write).await {
            Ok(Written { revision }) => {
                seen = Some((count, revision));
                written.fetch_add(1, Ordering::SeqCst);
            }
            Err(Error::Unclear { .. }) => return (key, count, Ended::Unclear, seen),
            Err(Error::Backend { .. }) => return (key, count, Ended::NotDone, seen),
            Err(other) => panic!("{key}: {other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_etcd_loses_nothing_acknowledged_and_what_is_unclear_is_said_to_be() {
    const ROUNDS: u64 = 6;
    const WRITERS: usize = 8;
    let Some(binary) = server::binary() else { return };
    let mut server = Server::durable(binary);
    let store = connect(&server).await;
    let mut feed = store.watch(Revision::FIRST).await.unwrap();
    let mut known: BTreeMap<Key, Option<(u64, Revision)>> =
        (0..WRITERS).map(|n| (pod(&format!("w{n}")), None)).collect();
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let (mut writers, written) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
        for (key, seen) in known.clone() {
            writers.spawn(count_up(Arc::clone(&store), key, seen, Arc::clone(&written)));
        }
        // On a disk that stands still a writer may end before.
        let (enough, begin) = (60 + 37 * round, Instant::now());
        while written.load(Ordering::SeqCst) <= enough && Arc::strong_count(&written) > 1 {
            assert!(begin.elapsed() < hung::change(), "it is not written to");
            breathe().await;
        }
        server.kill();
        let ended = writers.join_all().await;
        server.restart();
        for (key, tried, how, told) in ended {
            let found = tokio::time::timeout(hung::process(), found(&store, &key)).await.expect("etcd is back");
            let found = found
                .map(|stored| (std::str::from_utf8(&stored.value).unwrap().parse::<u64>().unwrap(), stored.revision));
            let was_done = found.is_some_and(|(count, _)| count == tried);
            match how {
                Ended::NotDone => assert_eq!(found, told, "{key}: what was not done is not there"),
                _ if was_done => {}
                _ => assert_eq!(found, told, "{key}: what was acknowledged last is there"),
            }
            acknowledged += told.map_or(0, |(count, _)| count) - known[&key].map_or(0, |(count, _)| count);
            known.insert(key, found);
        }
    }
    assert!(acknowledged > 50 * ROUNDS, "only {acknowledged} writes were acknowledged");
    replay(&store, &mut feed, &known).await;
}

/// What is there, once etcd is back.
async fn found(store: &Etcd, key: &Key) -> Option<Stored> {
    loop {
        match store.get(key).await {
            Ok(found) => return found,
            Err(Error::Backend { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(other) => panic!("{other}"),
        }
    }
}

/// The feed that lived through all of it told every change once and in order.
async fn replay(store: &Etcd, feed: &mut Feed, known: &BTreeMap<Key, Option<(u64, Revision)>>) {
    let now = store.current_revision().await.unwrap();
    let mut reached = Revision::FIRST;
    let mut told: BTreeMap<Key, (u64, Revision)> = BTreeMap::new();
    store.expect(now);
    while reached < now {
        let batch = tokio::time::timeout(hung::process(), feed.next()).await.expect("the feed goes on").unwrap();
        for event in batch.events {
            let crate::Change::Put { value, previous } = event.change else { panic!("nothing was deleted") };
            let count: u64 = std::str::from_utf8(&value).unwrap().parse().unwrap();
            let before = told.insert(event.key.clone(), (count, event.revision));
            assert_eq!(before.map(|(_, revision)| revision), previous.map(|stored| stored.revision), "{}", event.key);
            assert_eq!(count, before.map_or(0, |(count, _)| count + 1), "{}", event.key);
        }
        assert!(batch.revision > reached);
        reached = batch.revision;
    }
    let known: BTreeMap<Key, (u64, Revision)> =
        known.iter().filter_map(|(key, seen)| Some((key.clone(), (*seen)?))).collect();
    assert_eq!(told, known);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_whose_past_was_compacted_while_it_was_cut_off_says_so() {
    let Some(binary) = server::binary() else { return };
    let mut server = Server::fast(binary);
    let store = connect(&server).await;
    let mut feed = store.watch(Revision::FIRST).await.unwrap();
    let first = store.write(Write::create(pod("p"), "1".into())).await.unwrap().revision;
    assert_eq!(feed.next().await.unwrap().revision, first);
    server.restart();
    // The feed is cut off and not asked, so it does not resume before all this.
    let other = connect(&server).await;
    let second = other.write(Write::update(pod("p"), first, "2".into())).await.unwrap().revision;
    let third = other.write(Write::update(pod("p"), second, "3".into())).await.unwrap().revision;
    compact(&other.client).await;
    let expired = Error::Expired { requested: first, oldest: third, current: third };
    assert_eq!(tokio::time::timeout(hung::process(), feed.next()).await.unwrap(), Err(expired));
    assert_eq!(feed.next().await, Err(Error::Closed), "nothing follows an error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_whose_clock_went_back_ends_the_feed() {
    let Some(binary) = server::binary() else { return };
    let mut server = Server::fast(binary);
    let store = connect(&server).await;
    let mut feed = store.watch(Revision::FIRST).await.unwrap();
    let first = store.write(Write::create(pod("p"), "1".into())).await.unwrap().revision;
    assert_eq!(feed.next().await.unwrap().revision, first);
    server.forget_everything();
    let future = Error::Future { requested: first, current: Revision::FIRST };
    assert_eq!(tokio::time::timeout(hung::process(), feed.next()).await.unwrap(), Err(future));
}

#[tokio::test]
async fn an_etcd_that_stands_still_is_an_error_within_bounds_and_afterwards_all_is_well() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let store = connect(&server).await;
    let describe: Arc<dyn Describe> = Arc::new(Paths::new([]));
    let cache = Cache::start(store.clone(), [("pods".to_owned(), describe)], Options::default()).await.unwrap();
    let seen = cache.write(Write::create(pod("p"), object("p", "red"))).await.unwrap().revision;
    server.hold();
    let (clock, key) = (Clock::stop(), pod("p"));
    let asked = async {
        futures::join!(
            store.get(&key),
            store.list(ListOptions { limit: Some(1), ..ListOptions::all(crate::Range::of("pods", None)) }),
            store.current_revision(),
            cache.fresh(),
            store.write(Write::update(pod("p"), seen, object("p", "blue"))),
            store.watch(seen),
        )
    };
    let ((get, list, revision, fresh, write, watch), waited) =
        clock.pass_until(Duration::from_millis(100), asked).await;
    let is_backend = |error: &Error| matches!(error, Error::Backend { .. });
    assert!(is_backend(&get.unwrap_err()));
    assert!(is_backend(&list.unwrap_err()));
    assert!(is_backend(&revision.unwrap_err()));
    assert!(is_backend(&watch.unwrap_err()));
    assert!(matches!(fresh.unwrap_err(), cache::Error::Store(error) if is_backend(&error)));
    assert!(matches!(write.unwrap_err(), Error::Unclear { .. }));
    assert!(waited < Duration::from_secs(45), "{waited:?}");
    server.release();
    clock.run();
    // The write that nobody knew about may come through late, also after the key was looked at.
    let gone = async {
        loop {
            if cache.fresh().await.is_err() {
                continue;
            }
            let now = cache.resource("pods").unwrap().get(&key).unwrap().unwrap().revision();
            match cache.write(Write::delete(key.clone(), now)).await {
                Ok(_) => return,
                Err(error) => assert!(matches!(error, Error::Refused(crate::Refusal::Conflict { .. })), "{error}"),
            }
        }
    };
    tokio::time::timeout(hung::process(), gone).await.expect("all is well again");
    assert_eq!(cache.resource("pods").unwrap().get(&key).unwrap(), None);
    assert!(store.get(&key).await.unwrap().is_none());
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_an_error_and_its_writes_were_not_done() {
    let Some(binary) = server::binary() else { return };
    let mut server = Server::fast(binary);
    let store = connect(&server).await;
    server.kill();
    // The first may meet the old connection.
    let _ = store.current_revision().await;
    let not_done = store.write(Write::create(pod("p"), "x".into())).await.unwrap_err();
    assert!(
        matches!(&not_done, Error::Backend { doing: "writing", reason } if reason.contains("refused")),
        "{not_done}"
    );
    let read = store.get(&pod("p")).await.unwrap_err();
    assert!(matches!(&read, Error::Backend { doing: "reading one key", .. }), "{read}");
    let start_patience = Duration::from_millis(1);
    let never = Etcd::connect(EtcdOptions { start_patience, ..options(&server) }).await.unwrap_err();
    assert!(matches!(&never, EtcdError::Unreachable { reason, .. } if reason.contains("refused")), "{never}");
    server.restart();
    assert_eq!(connect(&server).await.get(&pod("p")).await, Ok(None));
}

#[tokio::test]
async fn the_next_member_is_asked_when_one_does_not_answer() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let servers = vec!["http://127.85.0.1:1".to_owned(), server.url()];
    let store = Etcd::connect(EtcdOptions { servers, ..options(&server) }).await.unwrap();
    let revision = store.write(Write::create(pod("p"), "x".into())).await.unwrap().revision;
    assert_eq!(store.current_revision().await, Ok(revision));
}
