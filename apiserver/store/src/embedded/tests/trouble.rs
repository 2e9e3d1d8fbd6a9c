//! Campaigns on the simulated disk: power cuts and I/O errors at any operation, opening and recovering among them, with
//! concurrent writers and a watcher. `KUN_SOAK` multiplies them.

use super::disk::Errno;
use super::tally::{Tally, next_random, soak};
use super::*;

#[path = "../../../tests/robust/expected.rs"]
mod expected;
#[path = "../../../tests/robust/writers.rs"]
mod writers;

use self::expected::Expected;
use self::writers::{Line, Said, WRITERS, follow, write_next};

/// Disks that lose power; `KUN_SOAK` multiplies them.
const DISKS: usize = 12;

/// How often each of them does.
const CUTS: usize = 5;

/// Operations that fail: every seventh, and with `KUN_SOAK` those between as well.
const FAILURES: usize = 60;

/// How many writes each writer tries before it leaves by itself.
const WRITES: u64 = 12;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Writes until the disk fails or everybody is done; returns what was said.
async fn live(store: Embedded, start: u64) -> Said {
    let store: Arc<dyn Store> = Arc::new(store);
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let feed = store.watch(store.current_revision().await.unwrap()).await.unwrap();
    let shown = Arc::clone(&seen);
    let watcher = tokio::spawn(follow(feed, move |line: Line| shown.lock().unwrap().push(line)));
    let writers = (0..WRITERS).map(|writer| {
        let (store, told) = (Arc::clone(&store), Arc::clone(&acknowledged));
        tokio::spawn(async move {
            for count in start..start + WRITES {
                match write_next(&store, writer, count).await {
                    Ok(line) => told.lock().unwrap().push(line),
                    Err(error) => return refuses_from_now_on(&store, &error).await,
                }
            }
        })
    });
    for writer in futures::future::join_all(writers).await {
        writer.unwrap();
    }
    store.close().await;
    tokio::time::timeout(hung::answer(), watcher).await.expect("the feed ends with the store").unwrap();
    let take = |lines: &Mutex<Vec<Line>>| std::mem::take(&mut *lines.lock().unwrap());
    Said { acknowledged: take(&acknowledged), seen: take(&seen) }
}

/// After a disk has failed under it, a store says neither success nor "not there".
async fn refuses_from_now_on(store: &Arc<dyn Store>, error: &Error) {
    let is_honest = |error: &Error| matches!(error, Error::Poisoned { .. } | Error::Backend { .. });
    assert!(is_honest(error), "{error:?}");
    if matches!(error, Error::Poisoned { .. }) {
        let again = store.write(Write::create(key("again"), "0".into())).await;
        assert!(matches!(again, Err(Error::Poisoned { .. })), "{again:?}");
    }
}

/// The number of a write is never used twice on a disk.
fn start_of(life: usize) -> u64 {
    life as u64 * WRITES
}

#[test]
fn the_power_goes_again_and_again_with_writers_at_work_and_nothing_is_lost_halved_or_numbered_twice() {
    let mut tally = Tally::of("power cuts");
    let mut seed = 0x0dd_ba11;
    for _ in 0..DISKS * soak() {
        let (mut disk, mut expected, mut was_made) = (Disk::default(), Expected::default(), false);
        for life in 0..CUTS {
            seed = next_random(seed);
            // Of opening a disk for the first time some moments are interesting, later on all of them.
            disk.cut_power_after(usize::try_from(seed % 160).unwrap());
            // It may go while the store opens, while it recovers, or while it closes.
            let said = match open_on(&disk) {
                Ok(store) => {
                    was_made = true;
                    runtime().block_on(live(store, start_of(life)))
                }
                Err(OpenError::Io { .. }) => Said::default(),
                Err(other) => panic!("{other}"),
            };
            tally.fault(said.acknowledged.len());
            // A file that was never whole has not got its name, and nobody looks at it again.
            disk = if was_made { disk.after_power_cut(next_random(seed)) } else { Disk::default() };
            tally.judge(look(&mut expected, &said, &disk));
        }
    }
    assert!(tally.acknowledged > tally.faults, "only {} writes", tally.acknowledged);
}

#[test]
fn any_operation_fails_once_and_the_store_says_so_until_it_is_opened_again_with_nothing_lost() {
    let mut tally = Tally::of("I/O errors");
    let mut seed = 0xbad_d15c;
    for n in 0..FAILURES * soak() {
        seed = next_random(seed);
        let (mut disk, mut expected) = (Disk::default(), Expected::default());
        let errno = if n % 3 == 2 { Errno::NoSpace } else { Errno::InputOutput };
        // A file that is not even made has not got its name yet; making it is what the tests with real files kill.
        drop(open_on(&disk).unwrap());
        disk.fail_after(n * 7 % 400, errno, seed);
        let said = match open_on(&disk) {
            Ok(store) => runtime().block_on(live(store, 0)),
            Err(OpenError::Io { .. }) => Said::default(),
            Err(other) => panic!("{other}"),
        };
        if disk.has_failed() {
            tally.fault(said.acknowledged.len());
        }
        // The process starts again on the same disk; or the power goes as well.
        if seed.is_multiple_of(2) {
            disk = disk.after_power_cut(next_random(seed));
        }
        tally.judge(look(&mut expected, &said, &disk));
    }
    assert!(tally.acknowledged > tally.faults, "only {} writes", tally.acknowledged);
}

/// Opens what is left and compares; it must take writes again.
fn look(expected: &mut Expected, said: &Said, disk: &Disk) -> Result<(), String> {
    let store = open_on(disk).map_err(|error| format!("it does not open again: {error}"))?;
    runtime().block_on(async {
        expected.check(said, &store).await?;
        let current = store.current_revision().await.map_err(|error| error.to_string())?;
        let probe = Key::new("probes", None, "probe").unwrap();
        let written = store.write(Write::create(probe.clone(), "0".into())).await.map_err(|error| error.to_string())?;
        let gone = store.write(Write::delete(probe, written.revision)).await.map_err(|error| error.to_string())?;
        store.close().await;
        if (written.revision, gone.revision) != (current.next(), current.next().next()) {
            return Err(format!("at {current} it goes on with {} and {}", written.revision, gone.revision));
        }
        expected.moved_to(gone.revision);
        Ok(())
    })
}
