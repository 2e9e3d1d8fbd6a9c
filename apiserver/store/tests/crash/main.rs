//! kill -9: the durable store in a real process on a real file, killed at random moments and at every point of the commit
//! path, of a backup and of a restore.
//!
//! The test starts itself as a child that writes with several writers and prints each acknowledgement, and each event its
//! watcher sees; when it is dead, the parent opens the file and compares. `KUN_SOAK` multiplies the rounds,
//! `KUN_CRASH_SEED` chooses other moments.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod child;
#[path = "../robust/expected.rs"]
mod expected;
#[path = "../etcd/server.rs"]
mod server;
#[path = "../robust/tally.rs"]
mod tally;
#[path = "../robust/writers.rs"]
mod writers;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use store::{Embedded, EmbeddedOptions, Etcd, Key, ListOptions, Revision, Store, Write, backup};

use self::child::Ending;
use self::expected::Expected;
use self::tally::{Tally, next_random, soak};
use self::writers::Said;

/// Rounds of random kills; `KUN_SOAK` multiplies them.
const KILLS: usize = 16;

/// Deaths at each point of a commit; `KUN_SOAK` multiplies them.
const DEATHS: usize = 3;

/// Every point a write passes.
const POINTS: [&str; 7] = [
    "before-transaction",
    "in-write",
    "before-sync",
    "after-sync",
    "before-notice",
    "before-acknowledgement",
    "after-acknowledgement",
];

/// What `abort` ends a process by.
const SIGABRT: i32 = 6;

fn seed() -> u64 {
    std::env::var("KUN_CRASH_SEED").map_or(0x5eed_1e55, |text| text.parse().expect("a number"))
}

#[test]
fn a_kill_at_any_moment_loses_no_acknowledged_write_and_never_moves_the_revision_back() {
    if let Some(task) = child::task() {
        return child::run(&task);
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    let (mut seed, mut expected, mut tally) = (seed(), Expected::default(), Tally::of("kill -9 at random moments"));
    for _ in 0..KILLS * soak() {
        seed = next_random(seed);
        // A quarter of them may not even have opened the file; the others have written as much as chance wants.
        let writes = if seed.is_multiple_of(4) { 0 } else { 40 + seed as usize / 4 % 200 };
        let (said, _) =
            child::start("write", &file, None).end(Ending::After(writes, Duration::from_micros(seed % 40_000)));
        tally.fault(said.acknowledged.len());
        tally.judge(check(&mut expected, &said, &file));
    }
    assert!(tally.acknowledged > 20 * KILLS * soak(), "only {} writes", tally.acknowledged);
}

#[test]
fn a_death_at_any_point_of_a_commit_loses_no_acknowledged_write_and_shows_nobody_what_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    let (mut seed, mut expected, mut tally) = (seed(), Expected::default(), Tally::of("death at points of a commit"));
    for _ in 0..DEATHS * soak() {
        for point in POINTS {
            seed = next_random(seed);
            // Some visits are of opening the file, the others of committing to it.
            let said = die_at("write", &file, point, 1 + seed % 60);
            tally.fault(said.acknowledged.len());
            tally.judge(check(&mut expected, &said, &file).map_err(|harm| format!("{point}: {harm}")));
        }
    }
    assert!(tally.acknowledged > DEATHS * soak() * POINTS.len(), "only {} writes", tally.acknowledged);
}

#[test]
fn a_death_amid_the_very_first_start_leaves_what_the_next_start_can_begin_from() {
    let directory = tempfile::tempdir().unwrap();
    let mut tally = Tally::of("death amid first starts");
    for point in ["in-write", "before-sync", "after-sync"] {
        for visit in 1..=6 {
            let file = directory.path().join(format!("{point}-{visit}"));
            let said = die_at("write", &file, point, visit);
            tally.fault(said.acknowledged.len());
            tally.judge(check(&mut Expected::default(), &said, &file).map_err(|harm| format!("{point}: {harm}")));
        }
    }
}

#[test]
fn a_death_amid_a_backup_leaves_no_backup_and_a_whole_store() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    let (mut seed, mut expected, mut tally) = (seed(), Expected::default(), Tally::of("death amid backups"));
    for _ in 0..DEATHS * soak() {
        seed = next_random(seed);
        let said = die_at("write and back up", &file, "in-backup", 1 + seed % 150);
        tally.fault(said.acknowledged.len());
        tally.judge(check(&mut expected, &said, &file));
        tally.judge(no_backup(&child::backup_of(&file)));
    }
}

#[test]
fn a_death_amid_a_restore_leaves_nothing_where_the_store_would_be_and_the_next_one_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let (file, mut tally) = (directory.path().join("store"), Tally::of("death amid restores"));
    child::fill(&file);
    let backup = child::backup_of(&file);
    let store = Embedded::open(&file, EmbeddedOptions::default()).unwrap();
    let summary = store.backup(std::fs::File::create(&backup).unwrap()).unwrap();
    let made = child::restored_of(&file);
    for visit in 1.. {
        let point = ["in-restore", "before-sync", "after-sync"][visit % 3];
        let (_, status) =
            child::start("restore", &file, Some(&format!("{point}:{}", 1 + visit / 3))).end(Ending::ByItself);
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(SIGABRT));
        tally.fault(0);
        tally.judge(if made.exists() { Err("half a store is there".to_owned()) } else { Ok(()) });
    }
    assert!(tally.faults >= 5, "only {} deaths", tally.faults);
    let restored = Embedded::open(&made, EmbeddedOptions::default()).unwrap();
    let mut again = Vec::new();
    let again = restored.backup(&mut again).unwrap();
    assert_eq!((again.revision, again.objects), (child::RESTORED_AT, summary.objects));
}

#[test]
fn a_death_between_claiming_a_compaction_and_doing_it_loses_nothing_and_the_next_one_compacts() {
    let Some(binary) = server::binary() else { return };
    let server = server::Server::fast(binary);
    let mut tally = Tally::of("death amid compactions");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for n in 0..2 * soak() {
        let connect = |every| runtime.block_on(Etcd::connect(child::compacting(&server.url(), every))).unwrap();
        let key = Key::new("pods", Some("a"), &format!("w{n}-0")).unwrap();
        let store = connect(None);
        let first = runtime.block_on(store.write(Write::create(key.clone(), "0".into()))).unwrap().revision;
        let second = runtime.block_on(store.write(Write::update(key.clone(), first, "1".into()))).unwrap().revision;
        drop(store);
        die_at("compact", Path::new(&server.url()), "in-compaction", 1);
        tally.fault(2);
        let store = connect(Some(Duration::from_millis(100)));
        let found = runtime.block_on(store.get(&key)).unwrap().map(|stored| (stored.revision, stored.value));
        tally.judge(if found == Some((second, "1".into())) { Ok(()) } else { Err(format!("{found:?}")) });
        tally.judge(runtime.block_on(forgets(&store, first)));
    }
}

/// Whether what followed a revision is forgotten soon.
async fn forgets(store: &Etcd, revision: Revision) -> Result<(), String> {
    let forgotten = async {
        let range = || store::Range::of("pods", None);
        let listed = || store.list(ListOptions { at: Some(revision), ..ListOptions::all(range()) });
        while !matches!(listed().await, Err(store::Error::Expired { .. })) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(hung::process(), forgotten).await.map_err(|_| format!("{revision} is never compacted"))
}

/// Opens the file and compares it with what was said.
fn check(expected: &mut Expected, said: &Said, file: &Path) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(async { Embedded::open(file, EmbeddedOptions::default()) });
    let store = store.map_err(|error| error.to_string())?;
    runtime.block_on(expected.check(said, &store))
}

/// Starts a child that is to die at a visit of a point, and returns what it had said.
fn die_at(task: &str, file: &Path, point: &str, visit: u64) -> Said {
    let (said, status) = child::start(task, file, Some(&format!("{point}:{visit}"))).end(Ending::ByItself);
    assert_eq!(status.signal(), Some(SIGABRT), "{point}:{visit} was not reached: {status}");
    said
}

fn no_backup(partial: &Path) -> Result<(), String> {
    match backup::verify(partial) {
        Err(backup::Error::Damaged(_) | backup::Error::NoBackup) => Ok(()),
        other => Err(format!("half a backup is taken for {other:?}")),
    }
}
