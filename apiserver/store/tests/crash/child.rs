//! The process that dies, and how its last words are read.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::{Change, Embedded, EmbeddedOptions, Event, Key, Revision, Store, Write};

/// Tell the child what to do and on which file; their presence makes the test the child.
const TASK: &str = "KUN_CRASH_TASK";
const FILE: &str = "KUN_CRASH_FILE";
const FAILPOINT: &str = "KUN_STORE_FAILPOINT";

/// The test that is the child when it is told to be.
const NAME: &str = "a_kill_at_any_moment_loses_no_acknowledged_write_and_never_moves_the_revision_back";

/// Each owns its keys, so that what the file must hold is known although they run at once.
const WRITERS: usize = 8;
const KEYS: usize = 5;

/// The child stops by itself if its parent forgets it, or it never comes to its failpoint.
const CHILD_LIMIT: Duration = Duration::from_secs(60);

/// The revision restored stores go on after.
pub(crate) const RESTORED_AT: Revision = Revision(1_000_000);

/// A write the child was told is durable, or one its watcher was shown.
pub(crate) struct Line {
    pub(crate) key: Key,
    pub(crate) revision: Revision,
    /// The counter in the value; none for a delete.
    pub(crate) count: Option<u64>,
}

/// What a child had said when it died.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) acknowledged: Vec<Line>,
    pub(crate) seen: Vec<Line>,
}

/// How a child ends.
pub(crate) enum Ending {
    After(Duration),
    ByItself,
}

/// A child that runs.
pub(crate) struct Running {
    child: Child,
    reader: JoinHandle<Said>,
}

/// Starts a child with a task on a file, and a failpoint to die at.
pub(crate) fn start(task: &str, file: &Path, failpoint: Option<&str>) -> Running {
    let mut command = Command::new("sh");
    // A process that aborts would leave its memory in the current folder.
    command.args(["-c", "ulimit -c 0; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--nocapture", "--test-threads=1"]);
    command.env(TASK, task).env(FILE, file).env_remove(FAILPOINT).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(failpoint) = failpoint {
        command.env(FAILPOINT, failpoint);
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // A pipe holds 64 KiB; a thread empties it so that the child never waits for us.
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).fold(Said::default(), Said::with));
    Running { child, reader }
}

impl Running {
    /// What it has said when it is dead, and how it died.
    pub(crate) fn end(mut self, ending: Ending) -> (Said, ExitStatus) {
        if let Ending::After(life) = ending {
            std::thread::sleep(life);
            self.child.kill().unwrap();
        }
        let status = self.child.wait().unwrap();
        (self.reader.join().unwrap(), status)
    }
}

impl Said {
    fn with(mut self, line: String) -> Said {
        // The first line begins with what the test harness prints; the last may be cut off, a whole one ends with a stop.
        if let Some((_, rest)) = line.split_once("acknowledged ") {
            self.acknowledged.extend(parse(rest));
        } else if let Some((_, rest)) = line.split_once("seen ") {
            self.seen.extend(parse(rest));
        }
        self
    }
}

fn parse(rest: &str) -> Option<Line> {
    let mut words = rest.strip_suffix('.')?.split(' ');
    let key = Key::new("pods", Some("a"), words.next()?).unwrap();
    let revision = Revision(words.next()?.parse().unwrap());
    let count = words.next()?.parse().ok();
    Some(Line { key, revision, count })
}

fn say(verb: &str, key: &Key, revision: Revision, count: Option<u64>) {
    let shown = count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let line = format!("{verb} {} {revision} {shown}.\n", key.name());
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
}

pub(crate) fn writer_of(key: &Key) -> String {
    key.name().split('-').next().unwrap().to_owned()
}

pub(crate) fn count_in(value: &Bytes) -> u64 {
    std::str::from_utf8(value).unwrap().trim_end().parse().unwrap()
}

/// Where the backup of a store lies.
pub(crate) fn backup_of(file: &Path) -> PathBuf {
    file.with_extension("backup")
}

/// Where a store is restored to.
pub(crate) fn restored_of(file: &Path) -> PathBuf {
    file.with_extension("restored")
}

/// What this process is to do, if it is the child.
pub(crate) fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// The child's life.
pub(crate) fn run(task: &str) {
    let file = PathBuf::from(std::env::var_os(FILE).unwrap());
    match task {
        "write" => write_until_killed(&file, false),
        "write and back up" => write_until_killed(&file, true),
        "restore" => drop(Embedded::restore(&restored_of(&file), &backup_of(&file), RESTORED_AT).unwrap()),
        other => panic!("no such task: {other}"),
    }
}

fn write_until_killed(file: &Path, backs_up: bool) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Embedded::open(file, EmbeddedOptions::default()).unwrap());
        let feed = store.watch(store.current_revision().await.unwrap()).await.unwrap();
        tokio::spawn(follow(feed));
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| tokio::spawn(write_forever(Arc::clone(&store), writer))).collect();
        if backs_up {
            let (read, to) = (Arc::clone(&store), backup_of(file));
            // Over and over into one file, as far as it gets.
            std::thread::spawn(move || while read.backup(std::fs::File::create(&to).unwrap()).is_ok() {});
        }
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

async fn follow(mut feed: store::Feed) {
    while let Ok(batch) = feed.next().await {
        for Event { revision, key, change } in batch.events {
            let count = match change {
                Change::Put { value, previous: _ } => Some(count_in(&value)),
                Change::Delete { previous: _ } => None,
            };
            say("seen", &key, revision, count);
        }
    }
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
            None => (Write::create(key.clone(), value), Some(count)),
            Some(stored) if count % 7 == 3 => (Write::delete(key.clone(), stored.revision), None),
            Some(stored) => (Write::update(key.clone(), stored.revision, value), Some(count)),
        };
        let revision = store.write(write).await.unwrap().revision;
        say("acknowledged", &key, revision, shown);
    }
}

/// Puts more into a store than a restore commits at once.
pub(crate) fn fill(file: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(file, EmbeddedOptions::default()).unwrap();
        let value = Bytes::from(vec![b'1'; 1 << 20]);
        let keys: Vec<Key> = (0..70).map(|n| Key::new("pods", Some("a"), &format!("w{n}-0")).unwrap()).collect();
        let writes = keys.into_iter().map(|key| store.write(Write::create(key, value.clone())));
        assert!(futures::future::join_all(writes).await.iter().all(Result::is_ok));
        store.close().await;
    });
}
