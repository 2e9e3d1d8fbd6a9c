//! kill -9 at random moments: the durable store in a real process on a real file.
//!
//! The test starts itself as a child that writes with several writers and prints each acknowledgement; the parent kills
//! it at a random moment, opens the file, and compares. `KUN_CRASH_ROUNDS` asks for more rounds, `KUN_CRASH_SEED` for
//! other moments.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::{Embedded, EmbeddedOptions, Key, ListOptions, Range, Revision, Store, Write};

/// Tells the child which file to write; its presence makes the test the child.
const FILE: &str = "KUN_CRASH_FILE";
const ROUNDS: &str = "KUN_CRASH_ROUNDS";
const SEED: &str = "KUN_CRASH_SEED";

/// Each owns its keys, so that what the file must hold is known although they run at once.
const WRITERS: usize = 8;
const KEYS: usize = 5;

/// The child stops by itself if its parent forgets it.
const CHILD_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_kill_at_any_moment_loses_no_acknowledged_write_and_never_moves_the_revision_back() {
    if let Some(file) = std::env::var_os(FILE) {
        return write_until_killed(PathBuf::from(file));
    }
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse::<u64>().expect("a number"));
    let (rounds, mut seed) = (number(ROUNDS, 24), number(SEED, 0x5eed_1e55));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    let mut state = Expected { revision: Revision::FIRST, keys: BTreeMap::new() };
    let mut acknowledged = 0;
    for round in 0..rounds {
        seed = next_random(seed);
        let printed = run_child_for(&file, Duration::from_millis(60 + seed % 240));
        acknowledged += printed.len();
        state.check(&printed, &file).unwrap_or_else(|fault| panic!("round {round}: {fault}"));
    }
    assert!(acknowledged > 20 * usize::try_from(rounds).unwrap(), "only {acknowledged} writes in {rounds} rounds");
}

/// xorshift64.
fn next_random(mut seed: u64) -> u64 {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^ (seed << 17)
}

/// A write the child was told is durable.
struct Acknowledged {
    key: Key,
    revision: Revision,
    /// The counter in the value; none for a delete.
    count: Option<u64>,
}

/// Starts the child, kills it after `life`, and returns what it had been acknowledged.
fn run_child_for(file: &Path, life: Duration) -> Vec<Acknowledged> {
    let name = "a_kill_at_any_moment_loses_no_acknowledged_write_and_never_moves_the_revision_back";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // A pipe holds 64 KiB; a thread empties it so that the child never waits for us.
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).filter_map(|l| parse(&l)).collect());
    std::thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

fn parse(line: &str) -> Option<Acknowledged> {
    // The first line begins with what the test harness prints; the last may be cut off, a whole one ends with a stop.
    let mut words = line.split_once("acknowledged ")?.1.strip_suffix('.')?.split(' ');
    let key = Key::new("pods", Some("a"), words.next()?).unwrap();
    let revision = Revision(words.next()?.parse().unwrap());
    let count = words.next()?.parse().ok();
    Some(Acknowledged { key, revision, count })
}

/// What the file must hold.
struct Expected {
    revision: Revision,
    /// By key: the newest acknowledged write.
    keys: BTreeMap<Key, (Revision, u64)>,
}

impl Expected {
    /// Compares the file with what was acknowledged since the last look. Each writer may have had one write in flight,
    /// and every revision must be somebody's: acknowledged, or in flight and visible.
    fn check(&mut self, acknowledged: &[Acknowledged], file: &Path) -> Result<(), String> {
        let (revision, found) = read(file);
        let mut last: BTreeMap<String, Revision> = BTreeMap::new();
        for Acknowledged { key, revision, count } in acknowledged {
            last.insert(writer_of(key), *revision);
            match count {
                Some(count) => drop(self.keys.insert(key.clone(), (*revision, *count))),
                None => drop(self.keys.remove(key)),
            }
        }
        let mut in_flight: BTreeMap<String, &Key> = BTreeMap::new();
        for key in self.keys.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            let (told, here) = (self.keys.get(key), found.get(key));
            if told == here {
                continue;
            }
            let newest = last.get(&writer_of(key)).copied().unwrap_or(self.revision);
            if here.is_some_and(|(at, _)| *at <= newest) {
                return Err(format!("{key}: acknowledged {told:?}, found the older {here:?}"));
            }
            if let Some(other) = in_flight.insert(writer_of(key), key) {
                return Err(format!("{key} and {other} differ from what one writer was told: {told:?}, {here:?}"));
            }
        }
        let expected = self.revision.0 + (acknowledged.len() + in_flight.len()) as u64;
        if revision.0 != expected {
            let (had, told) = (self.revision, acknowledged.len());
            return Err(format!(
                "{told} writes after {had} were acknowledged, in flight {in_flight:?}, now {revision}"
            ));
        }
        *self = Expected { revision, keys: found };
        Ok(())
    }
}

fn writer_of(key: &Key) -> String {
    key.name().split('-').next().unwrap().to_owned()
}

fn read(file: &Path) -> (Revision, BTreeMap<Key, (Revision, u64)>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(file, EmbeddedOptions::default()).expect("the file opens after a kill");
        let page = store.list(ListOptions::all(Range::All)).await.unwrap();
        let count = |value: &Bytes| std::str::from_utf8(value).unwrap().trim_end().parse().unwrap();
        let found = page.items.iter().map(|(key, stored)| (key.clone(), (stored.revision, count(&stored.value))));
        (page.revision, found.collect())
    })
}

/// The child.
fn write_until_killed(file: PathBuf) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Embedded::open(&file, EmbeddedOptions::default()).unwrap());
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| tokio::spawn(write_forever(Arc::clone(&store), writer))).collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

async fn write_forever(store: Arc<Embedded>, writer: usize) {
    let started = Instant::now();
    for count in 0_u64.. {
        if started.elapsed() > CHILD_LIMIT {
            return;
        }
        let key = Key::new("pods", Some("a"), &format!("w{writer}-{}", count % KEYS as u64)).unwrap();
        // Padded, so that a batch is many pages.
        let value = Bytes::from(format!("{count:<1200}"));
        let (write, shown) = match store.get(&key).await.unwrap() {
            None => (Write::create(key.clone(), value), count.to_string()),
            Some(stored) if count % 7 == 3 => (Write::delete(key.clone(), stored.revision), "-".to_owned()),
            Some(stored) => (Write::update(key.clone(), stored.revision, value), count.to_string()),
        };
        let revision = store.write(write).await.unwrap().revision;
        let line = format!("acknowledged {} {revision} {shown}.\n", key.name());
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
    }
}
