//! The process that dies, and how its last words are read.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::{Embedded, EmbeddedOptions, Etcd, EtcdOptions, Key, Revision, Store, Write};

use super::writers::{Line, Said, WRITERS, follow, write_next};

/// Tell the child what to do and on which file; their presence makes the test the child.
const TASK: &str = "KUN_CRASH_TASK";
const FILE: &str = "KUN_CRASH_FILE";
const FAILPOINT: &str = "KUN_STORE_FAILPOINT";

/// The test that is the child when it is told to be.
const NAME: &str = "a_kill_at_any_moment_loses_no_acknowledged_write_and_never_moves_the_revision_back";

/// The revision restored stores go on after.
pub(crate) const RESTORED_AT: Revision = Revision(1_000_000);

/// How a child ends.
pub(crate) enum Ending {
    /// It is killed so long after so many of its writes were acknowledged.
    After(usize, Duration),
    ByItself,
}

/// A child that runs.
pub(crate) struct Running {
    child: Child,
    /// How many acknowledgements were heard so far.
    acknowledged: Arc<AtomicUsize>,
    reader: JoinHandle<Said>,
}

/// Starts a child with a task on a file, and a failpoint to die at.
pub(crate) fn start(task: &str, file: &Path, failpoint: Option<&str>) -> Running {
    let mut command = Command::new("sh");
    // A process that aborts would leave its memory in the current folder.
    command.args(["-c", "ulimit -c 0; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--nocapture", "--test-threads=1"]);
    command
        .env(TASK, task)
        .env(FILE, file)
        .env(hung::VARIABLE, hung::stretch().to_string())
        .env_remove(FAILPOINT)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(failpoint) = failpoint {
        command.env(FAILPOINT, failpoint);
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // A pipe holds 64 KiB; a thread empties it so that the child never waits for us.
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&acknowledged);
    let listen = move |said: Said, line: String| {
        let said = hear(said, line);
        count.store(said.acknowledged.len(), Ordering::SeqCst);
        said
    };
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).fold(Said::default(), listen));
    Running { child, acknowledged, reader }
}

impl Running {
    /// What it has said when it is dead, and how it died.
    pub(crate) fn end(mut self, ending: Ending) -> (Said, ExitStatus) {
        if let Ending::After(writes, life) = ending {
            let begin = Instant::now();
            while self.acknowledged.load(Ordering::SeqCst) < writes {
                assert!(begin.elapsed() < hung::change(), "the child does not get on");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(life);
            self.child.kill().unwrap();
        }
        let status = self.child.wait().unwrap();
        (self.reader.join().unwrap(), status)
    }
}

/// Takes down a line.
fn hear(mut said: Said, line: String) -> Said {
    // The first line begins with what the test harness prints; the last may be cut off, a whole one ends with a stop.
    if let Some((_, rest)) = line.split_once("acknowledged ") {
        said.acknowledged.extend(parse(rest));
    } else if let Some((_, rest)) = line.split_once("seen ") {
        said.seen.extend(parse(rest));
    }
    said
}

fn parse(rest: &str) -> Option<Line> {
    let mut words = rest.strip_suffix('.')?.split(' ');
    let key = Key::new("pods", Some("a"), words.next()?).unwrap();
    let revision = Revision(words.next()?.parse().unwrap());
    let count = words.next()?.parse().ok();
    Some(Line { key, revision, count })
}

fn say(verb: &str, Line { key, revision, count }: &Line) {
    let shown = count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let line = format!("{verb} {} {revision} {shown}.\n", key.name());
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
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
        "compact" => compact_until_killed(file.to_str().unwrap()),
        other => panic!("no such task: {other}"),
    }
}

fn write_until_killed(file: &Path, backs_up: bool) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Embedded::open(file, EmbeddedOptions::default()).unwrap());
        let feed = store.watch(store.current_revision().await.unwrap()).await.unwrap();
        tokio::spawn(follow(feed, |line| say("seen", &line)));
        let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write_forever(store.clone(), writer))).collect();
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

/// An etcd, and how often it is compacted.
pub(crate) fn compacting(url: &str, every: Option<Duration>) -> EtcdOptions {
    EtcdOptions { compact_every: every, ..EtcdOptions::new(vec![url.to_owned()]) }
}

fn compact_until_killed(url: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let _store = Etcd::connect(compacting(url, Some(Duration::from_millis(100)))).await.unwrap();
        tokio::time::sleep(hung::process()).await;
    });
}

/// The child stops by itself if its parent forgets it, or it never comes to its failpoint.
async fn write_forever(store: Arc<dyn Store>, writer: usize) {
    let started = Instant::now();
    for count in 0_u64.. {
        if started.elapsed() > hung::change() {
            return;
        }
        say("acknowledged", &write_next(&store, writer, count).await.unwrap());
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
