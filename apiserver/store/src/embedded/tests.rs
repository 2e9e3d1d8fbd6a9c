//! The durable store: the conformance suite, and what only it can get wrong: files, locks, failing and dying disks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod disk;
#[path = "../../tests/robust/tally.rs"]
mod tally;
mod trouble;

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use redb::Builder;
use tempfile::TempDir;

use self::disk::Disk;
use super::*;
use crate::conformance::{Model, Subject, local_conformance, steps};
use crate::{Range, VALUE_LIMIT};

local_conformance!(Subject::new(|clock| {
    let directory = TempDir::new().unwrap();
    let options = EmbeddedOptions { clock, ..EmbeddedOptions::default() };
    (Arc::new(Embedded::open(&directory.path().join("store"), options).unwrap()), Some(directory))
}));

fn key(name: &str) -> Key {
    Key::new("pods", Some("a"), name).unwrap()
}

fn open(path: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(path, EmbeddedOptions::default())
}

fn open_on(disk: &Disk) -> Result<Embedded, OpenError> {
    let path = Path::new("disk");
    let database = Builder::new().create_with_backend(disk.clone()).map_err(|error| file::refused(path, error))?;
    Embedded::start(database, path, EmbeddedOptions::default())
}

async fn create(store: &Embedded, name: &str) -> Result<Revision, Error> {
    store.write(Write::create(key(name), "x".into())).await.map(|written| written.revision)
}

async fn contents(store: &Embedded) -> Vec<(Key, Stored)> {
    store.list(ListOptions::all(Range::All)).await.unwrap().items
}

#[tokio::test]
async fn what_was_written_is_there_after_reopening_and_revisions_go_on() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    let store = open(&path).unwrap();
    let revision = create(&store, "a").await.unwrap();
    let gone = create(&store, "b").await.unwrap();
    let deleted = store.write(Write::delete(key("b"), gone)).await.unwrap().revision;
    let before = contents(&store).await;
    store.close().await;
    drop(store);
    let store = open(&path).unwrap();
    assert_eq!((contents(&store).await, before[0].1.revision), (before, revision));
    assert_eq!(store.current_revision().await, Ok(deleted));
    assert_eq!(create(&store, "c").await, Ok(deleted.next()));
}

/// A commit can be read from the file a moment before it is published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_reads_what_the_current_revision_does_not_cover_yet() {
    let directory = TempDir::new().unwrap();
    let store = Arc::new(open(&directory.path().join("store")).unwrap());
    let before = store.current_revision().await.unwrap();
    let held = store.log.hold();
    let writer = Arc::clone(&store);
    let write = tokio::spawn(async move { create(&writer, "a").await.unwrap() });
    while snapshot(&store.readers, None, &store.clock).unwrap().1 == before {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let (one, all) = (Arc::clone(&store), Arc::clone(&store));
    let get = tokio::spawn(async move { (one.get(&key("a")).await.unwrap().unwrap().revision, one.log.revision()) });
    let list = tokio::spawn(async move { (contents(&all).await[0].1.revision, all.log.revision()) });
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!((get.is_finished(), list.is_finished(), store.log.revision()), (false, false, before));
    drop(held);
    let written = write.await.unwrap();
    assert_eq!((get.await.unwrap(), list.await.unwrap()), ((written, written), (written, written)));
}

#[tokio::test]
async fn the_file_is_for_its_owner_only_and_for_one_process() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    let store = open(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let refused = open(&path).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { path: p } if *p == path), "{refused}");
    store.close().await;
    open(&path).expect("closing releases the file");
}

#[tokio::test]
async fn a_file_of_an_unknown_format_is_refused_with_both_numbers() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    drop(open(&path).unwrap());
    let database = Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(file::META).unwrap().insert("format", 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let message = open(&path).unwrap_err().to_string();
    let expected = format!("opening {}: its format is 2, this version reads format 1", path.display());
    assert_eq!(message, expected);
}

#[tokio::test]
async fn a_file_that_is_not_a_store_is_refused_and_left_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    std::fs::write(&path, "precious".repeat(1000)).unwrap();
    assert!(open(&path).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious".repeat(1000));
}

#[tokio::test]
async fn a_file_whose_counter_is_behind_its_content_is_refused() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    let store = open(&path).unwrap();
    create(&store, "a").await.unwrap();
    create(&store, "b").await.unwrap();
    drop(store);
    let database = Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(file::META).unwrap().insert(file::REVISION, 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = open(&path).unwrap_err();
    let OpenError::Damaged { reason, .. } = &error else { panic!("{error}") };
    assert_eq!(reason, "pods/a/b was written at revision 3, but the newest revision is 2");
}

#[tokio::test]
async fn a_restored_file_can_be_told_where_revisions_must_go_on() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    let options = EmbeddedOptions { minimum_revision: Revision(1000), ..EmbeddedOptions::default() };
    let store = Embedded::open(&path, options.clone()).unwrap();
    assert_eq!(create(&store, "a").await, Ok(Revision(1001)));
    drop(store);
    let store = Embedded::open(&path, options).unwrap();
    assert_eq!(store.current_revision().await, Ok(Revision(1001)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_taken_while_others_write_is_one_moment_and_restores_as_it_was() {
    let directory = TempDir::new().unwrap();
    let store = Arc::new(open(&directory.path().join("store")).unwrap());
    for n in 0..200 {
        create(&store, &format!("p{n:03}")).await.unwrap();
    }
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut written = 0;
            loop {
                match create(&store, &format!("q{written:06}")).await {
                    Ok(_) => written += 1,
                    Err(Error::Closed) => return written,
                    Err(other) => panic!("{other}"),
                }
            }
        })
    };
    let path = directory.path().join("backup");
    for round in 0..5 {
        let (to, read) = (std::fs::File::create(&path).unwrap(), Arc::clone(&store));
        let summary = tokio::task::spawn_blocking(move || read.backup(std::io::BufWriter::new(to))).await.unwrap();
        let summary = summary.unwrap();
        assert_eq!(backup::verify(&path).unwrap(), summary);
        // Creates only: the revision says how many objects there were.
        assert_eq!(summary.objects, summary.revision.0 - 1, "one moment");
        let (restored, revision) = (directory.path().join(format!("restored{round}")), summary.revision.next());
        assert_eq!(Embedded::restore(&restored, &path, revision).unwrap(), summary);
        let restored = open(&restored).unwrap();
        assert_eq!(restored.current_revision().await, Ok(revision));
        let (found, all) = (contents(&restored).await, contents(&store).await);
        let as_it_was = all.into_iter().filter(|(_, stored)| stored.revision <= summary.revision);
        assert_eq!(found, as_it_was.collect::<Vec<_>>());
        assert_eq!(create(&restored, "after").await, Ok(revision.next()));
    }
    store.close().await;
    assert!(writer.await.unwrap() > 0);
}

#[test]
fn a_damaged_backup_makes_no_store_and_nothing_is_overwritten() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let store = open(&path("store")).unwrap();
    store.backup(std::fs::File::create(path("backup")).unwrap()).unwrap();
    let mut bytes = std::fs::read(path("backup")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(path("damaged"), bytes).unwrap();
    let damaged = Embedded::restore(&path("new"), &path("damaged"), Revision(9)).unwrap_err();
    assert_eq!(damaged.to_string(), "reading the backup: it is damaged: its checksum is another");
    assert!(!path("new").exists());
    let there = Embedded::restore(&path("store"), &path("backup"), Revision(9)).unwrap_err();
    assert_eq!(there.to_string(), format!("making the store: {} exists already", path("store").display()));
}

#[tokio::test]
async fn a_failed_sync_stops_all_writes_until_the_store_is_opened_again() {
    let disk = Disk::default();
    let store = open_on(&disk).unwrap();
    let mut feed = store.watch(Revision::FIRST).await.unwrap();
    let first = create(&store, "a").await.unwrap();
    assert_eq!(feed.next().await.unwrap().revision, first);
    assert_eq!(store.health(), Ok(()));
    disk.fail_syncs(true);
    let failed = create(&store, "b").await.unwrap_err();
    assert!(matches!(&failed, Error::Poisoned { reason } if reason.contains("failed to sync")), "{failed}");
    disk.fail_syncs(false);
    assert!(store.health().unwrap_err().starts_with("a commit failed, and nothing is written until a restart: "));
    let syncs = disk.syncs();
    assert!(matches!(create(&store, "c").await, Err(Error::Poisoned { .. })));
    assert!(matches!(store.write(Write::delete(key("a"), first)).await, Err(Error::Poisoned { .. })));
    assert_eq!((disk.syncs(), store.current_revision().await), (syncs, Ok(first)));
    assert_eq!(futures::FutureExt::now_or_never(feed.next()), None);
    drop(store);
    let store = open_on(&disk.without_what_was_not_synced()).unwrap();
    assert_eq!(contents(&store).await.iter().map(|(key, _)| key.name()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(create(&store, "d").await, Ok(first.next()));
}

#[tokio::test]
async fn writes_that_wait_together_share_one_sync() {
    let disk = Disk::default();
    let store = open_on(&disk).unwrap();
    let before = disk.syncs();
    let names: Vec<String> = (0..100).map(|n| format!("p{n}")).collect();
    // What was committed first is not published before all are asked for, however slowly that goes.
    let held = store.log.hold();
    let mut written = Box::pin(futures::future::join_all(names.iter().map(|name| create(&store, name))));
    assert!(futures::poll!(&mut written).is_pending());
    drop(held);
    let written = written.await;
    assert_eq!(written, (2..102).map(|n| Ok(Revision(n))).collect::<Vec<_>>());
    let syncs = disk.syncs() - before;
    assert!(syncs <= 4, "{syncs} syncs for 100 writes");
}

#[tokio::test]
async fn a_full_queue_says_busy_at_once() {
    let disk = Disk::default();
    let store = open_on(&disk).unwrap();
    // The thread takes one batch, which is held back; what waits behind it is bounded.
    let held = store.log.hold();
    let waiting: Vec<_> = (0..20 * commit::QUEUE_LIMIT)
        .map_while(|n| store.queue.push(Write::create(key(&format!("p{n}")), vec![0; 4096].into())).ok())
        .collect();
    assert!(waiting.len() >= commit::QUEUE_LIMIT && waiting.len() < 20 * commit::QUEUE_LIMIT, "{}", waiting.len());
    drop(held);
    let all = futures::future::join_all(waiting).await;
    assert!(all.iter().all(Result::is_ok));
}

#[tokio::test]
async fn closing_finishes_what_is_queued() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    let store = open(&path).unwrap();
    let big = vec![7_u8; VALUE_LIMIT / 4];
    let waiting: Vec<_> =
        (0..40).map(|n| store.queue.push(Write::create(key(&format!("p{n}")), big.clone().into())).unwrap()).collect();
    store.close().await;
    assert!(futures::future::join_all(waiting).await.iter().all(Result::is_ok));
    assert_eq!(contents(&open(&path).unwrap()).await.len(), 40);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged(
        history in steps(),
        power in 0..400_usize,
        seed in 1..u64::MAX,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let disk = Disk::default();
            let store = open_on(&disk).unwrap();
            disk.cut_power_after(power);
            // What was acknowledged, and what it may have become by the one write whose outcome is unknown.
            let mut sure = Model::new();
            let mut maybe = sure.clone();
            for step in &history {
                let Some(write) = sure.write(step) else { continue };
                maybe = sure.clone();
                let expected = maybe.apply(&write);
                match store.write(write).await {
                    Ok(written) => {
                        assert_eq!(Ok(written.revision), expected);
                        sure = maybe.clone();
                    }
                    Err(Error::Refused(refusal)) => assert_eq!(Err(refusal), expected),
                    Err(Error::Poisoned { .. }) => break,
                    Err(other) => panic!("{other:?}"),
                }
            }
            drop(store);
            let store = open_on(&disk.after_power_cut(seed)).unwrap();
            let revision = store.current_revision().await.unwrap();
            let found = contents(&store).await;
            let as_acknowledged = (sure.revision, sure.in_range(&Range::All));
            let with_the_last = (maybe.revision, maybe.in_range(&Range::All));
            let found = (revision, found);
            assert!(found == as_acknowledged || found == with_the_last, "{found:?}\n{as_acknowledged:?}");
            create(&store, "after").await.unwrap();
        });
    }
}
