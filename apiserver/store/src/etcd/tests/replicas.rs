//! Several processes on one etcd: each its own store and its own cache.

use crate::cache::{Cache, Describe, Options, Paths};
use crate::{Change, Refusal};

use super::clock::{Clock, breathe};
use super::*;

async fn cache(store: &Arc<Etcd>) -> Cache {
    let describe: Arc<dyn Describe> = Arc::new(Paths::new([]));
    let store: Arc<dyn Store> = store.clone();
    Cache::start(store, [("pods".to_owned(), describe)], Options::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_through_one_is_read_through_the_other_at_once() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let (one, two) = (cache(&connect(&server).await).await, cache(&connect(&server).await).await);
    let (one_pods, two_pods) = (one.resource("pods").unwrap(), two.resource("pods").unwrap());
    let mut seen = one.write(Write::create(pod("p"), object("p", "0"))).await.unwrap().revision;
    for n in 1..100 {
        let (writer, reader, pods) = if n % 2 == 0 { (&one, &two, two_pods) } else { (&two, &one, one_pods) };
        let value = object("p", &n.to_string());
        seen = writer.write(Write::update(pod("p"), seen, value)).await.unwrap().revision;
        let read = if n % 3 == 0 { patient(|| reader.wait_for(seen)).await } else { patient(|| reader.fresh()).await };
        assert!(read.unwrap() >= seen);
        assert_eq!(pods.get(&pod("p")).unwrap().unwrap().revision(), seen);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_create_the_same_one_wins_and_the_other_is_told_what_is_there() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let (one, two) = (connect(&server).await, connect(&server).await);
    for n in 0..50 {
        let name = format!("p{n}");
        let create = |store: Arc<Etcd>, by: &'static str| {
            let write = Write::create(pod(&name), by.into());
            async move { store.write(write).await }
        };
        let outcomes = futures::join!(create(one.clone(), "one"), create(two.clone(), "two"));
        let (won, lost, winner) = match outcomes {
            (Ok(won), Err(lost)) => (won, lost, "one"),
            (Err(lost), Ok(won)) => (won, lost, "two"),
            other => panic!("{other:?}"),
        };
        let current = Stored { revision: won.revision, value: winner.into() };
        assert_eq!(lost, Error::Refused(Refusal::Exists { current }));
    }
}

/// Asks again when a machine stood still for longer than a read waits.
async fn patient<F>(read: impl Fn() -> F) -> Result<Revision, crate::cache::Error>
where
    F: Future<Output = Result<Revision, crate::cache::Error>>,
{
    let again = async {
        loop {
            match read().await {
                Err(crate::cache::Error::Future { .. }) => {}
                outcome => return outcome,
            }
        }
    };
    tokio::time::timeout(hung::answer(), again).await.expect("a read ends")
}

#[tokio::test]
async fn a_fresh_read_does_not_wait_for_what_happens_elsewhere_in_etcd() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let store = connect(&server).await;
    let cache = cache(&store).await;
    for _ in 0..50 {
        let elsewhere = put(&store.client, "/elsewhere/x", "y").await;
        // etcd says nothing by itself of what is elsewhere: who did not ask for it would never get there.
        let fresh = patient(|| cache.fresh()).await;
        assert!(fresh.unwrap() >= elsewhere);
    }
    // A revision that a client brings from another replica, too.
    let elsewhere = put(&store.client, "/elsewhere/x", "z").await;
    assert!(patient(|| cache.wait_for(elsewhere)).await.unwrap() >= elsewhere);
}

#[tokio::test]
async fn a_revision_that_never_comes_is_waited_for_no_longer_than_others() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let cache = cache(&connect(&server).await).await;
    let clock = Clock::stop();
    let waiting = tokio::spawn(async move { cache.wait_for(Revision(1_000_000)).await });
    clock.pass(crate::cache::WAIT_LIMIT - Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    clock.pass(Duration::from_millis(100)).await;
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, crate::cache::Error::Future { requested: Revision(1_000_000), .. }), "{error}");
}

#[tokio::test]
async fn what_others_keep_below_the_prefix_disturbs_no_feed() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let store = connect(&server).await;
    let mut feed = store.watch(Revision::FIRST).await.unwrap();
    put(&store.client, "/registry/ranges/a/b/c/d", "1").await;
    put(&store.client, "/registry/ranges/a/b/c/d", "2").await;
    let ours = store.write(Write::create(pod("p"), "x".into())).await.unwrap().revision;
    let mut told = Vec::new();
    let mut reached = Revision::FIRST;
    while reached < ours {
        let batch = feed.next().await.unwrap();
        reached = batch.revision;
        told.extend(batch.events);
    }
    let change = Change::Put { value: "x".into(), previous: None };
    assert_eq!(told, [crate::Event { revision: ours, key: pod("p"), change }]);
}

#[tokio::test]
async fn one_of_many_compacts_per_interval_and_the_interval_before_stays_readable() {
    const EVERY: Duration = Duration::from_secs(300);
    const INTERVALS: i64 = 8;
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let clock = Clock::stop();
    let compacting = || EtcdOptions { compact_every: Some(EVERY), ..options(&server) };
    let (one, _two, _three) = (
        Etcd::connect(compacting()).await.unwrap(),
        Etcd::connect(compacting()).await.unwrap(),
        Etcd::connect(compacting()).await.unwrap(),
    );
    let first = one.write(Write::create(pod("p"), "x".into())).await.unwrap().revision;
    let list = async |at| one.list(ListOptions { at: Some(at), ..ListOptions::all(crate::Range::All) }).await;
    let counted =
        async || one.client.range(marker(0), wire::SMALL).await.unwrap().kvs.first().map_or(0, |kv| kv.version);
    let mut before = first;
    for interval in 1..=INTERVALS {
        clock.pass(EVERY).await;
        while counted().await < interval {
            breathe().await;
        }
        let now = one.current_revision().await.unwrap();
        assert!(list(before).await.is_ok(), "the interval before is compacted in {interval}");
        assert!(list(now).await.is_ok(), "the present is compacted in {interval}");
        before = now;
    }
    assert!(matches!(list(first).await, Err(Error::Expired { .. })), "nothing is ever compacted");
    assert_eq!(counted().await, INTERVALS);
}
