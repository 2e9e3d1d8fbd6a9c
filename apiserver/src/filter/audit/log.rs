//! The file that audit events go to: a thread that writes, behind a queue that never makes a request wait.
//!
//! What does not fit the queue is dropped and counted. The file is rotated when it has grown too large; everything that
//! was queued is written before the log closes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use jiff::Timestamp;

use crate::filter::metrics::Metrics;

/// How many events may wait for the disk: Kubernetes' own buffer.
const QUEUE_EVENTS: usize = 10_000;
/// How many bytes they may have.
const QUEUE_BYTES: usize = 64 << 20;
/// Size of a file, in megabytes, if none is chosen: Kubernetes' own.
pub const MEGABYTES: u64 = 100;

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The file; absent: standard output.
    pub path: Option<PathBuf>,
    /// Largest size in bytes before the file is rotated.
    pub size_max: u64,
    /// How many rotated files are kept; none: all.
    pub backups: Option<usize>,
}

/// The log.
pub struct Log {
    queue: Mutex<Option<SyncSender<Vec<u8>>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    waiting: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
}

impl Log {
    /// Opens the log and starts its thread.
    pub fn open(target: Target, metrics: Arc<Metrics>) -> io::Result<Arc<Self>> {
        let output: Box<dyn Output> = match target.path {
            None => Box::new(Standard),
            Some(path) => Box::new(Rotating::open(path, target.size_max, target.backups)?),
        };
        Self::start(output, metrics)
    }

    fn start(mut output: Box<dyn Output>, metrics: Arc<Metrics>) -> io::Result<Arc<Self>> {
        let (queue, lines) = sync_channel(QUEUE_EVENTS);
        let waiting = Arc::new(AtomicUsize::new(0));
        let (left, counted) = (Arc::clone(&waiting), Arc::clone(&metrics));
        let writer = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write(&lines, output.as_mut(), &left, &counted))?;
        let (queue, writer) = (Mutex::new(Some(queue)), Mutex::new(Some(writer)));
        Ok(Arc::new(Self { queue, writer, waiting, metrics }))
    }

    /// Queues a line, or drops it and counts that.
    pub(super) fn push(&self, line: Vec<u8>) {
        let size = line.len();
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let fits = self.waiting.fetch_add(size, Ordering::AcqRel) + size <= QUEUE_BYTES;
        let taken = fits && queue.is_some_and(|queue| queue.try_send(line).is_ok());
        if taken {
            self.metrics.audited();
        } else {
            self.waiting.fetch_sub(size, Ordering::AcqRel);
            self.metrics.audit_failed();
        }
    }

    /// Writes what is queued, and takes nothing more. Blocks until it is written.
    pub fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the thread that writes audit events panicked");
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Log")
    }
}

/// Writes until the log is closed. A line that cannot be written is lost and counted; the next one is tried.
fn write(lines: &Receiver<Vec<u8>>, output: &mut dyn Output, waiting: &AtomicUsize, metrics: &Metrics) {
    let mut is_broken = false;
    for line in lines {
        let written = output.write(&line);
        waiting.fetch_sub(line.len(), Ordering::AcqRel);
        if let Err(error) = &written {
            metrics.audit_failed();
            if !is_broken {
                tracing::error!(%error, "audit events cannot be written and are lost");
            }
        }
        is_broken = written.is_err();
    }
}

/// Takes whole lines.
trait Output: Send {
    fn write(&mut self, line: &[u8]) -> io::Result<()>;
}

struct Standard;

impl Output for Standard {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(line)?;
        out.flush()
    }
}

/// A file that is put aside, under a name with the time, when it has grown too large.
struct Rotating {
    path: PathBuf,
    file: File,
    size: u64,
    size_max: u64,
    backups: Option<usize>,
}

impl Rotating {
    fn open(path: PathBuf, size_max: u64, backups: Option<usize>) -> io::Result<Self> {
        let mut file = private(&path)?;
        let mut size = file.metadata()?.len();
        if size > 0 {
            let mut last = [0];
            file.read_exact_at(&mut last, size - 1)?;
            // A crash has cut the last line off: the next one is to stand on its own.
            if last != *b"\n" {
                file.write_all(b"\n")?;
                size += 1;
            }
        }
        Ok(Self { path, file, size, size_max, backups })
    }

    fn rotate(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, self.aside(Timestamp::now()))?;
        self.file = private(&self.path)?;
        self.size = 0;
        self.forget()
    }

    /// `audit.log` → `audit-2026-11-21T18-31-09.123456.log`: the names are in the order of time.
    fn aside(&self, now: Timestamp) -> PathBuf {
        let time = format!("{now:.6}").trim_end_matches('Z').replace(':', "-");
        let (stem, extension) = name_of(&self.path);
        self.path.with_file_name(format!("{stem}-{time}{extension}"))
    }

    /// Removes the oldest files that were put aside.
    fn forget(&self) -> io::Result<()> {
        let Some(backups) = self.backups else { return Ok(()) };
        let (stem, extension) = name_of(&self.path);
        let folder = self.path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let is_backup = |name: &str| {
            let time = name.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(&extension));
            time.is_some_and(|time| time.len() == "2026-11-21T18-31-09.123456".len() && time.starts_with("20"))
        };
        let names = std::fs::read_dir(folder)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut old: Vec<String> = names.filter(|name| is_backup(name)).collect();
        old.sort();
        let excess = old.len().saturating_sub(backups);
        old.into_iter().take(excess).try_for_each(|name| std::fs::remove_file(folder.join(name)))
    }
}

impl Output for Rotating {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        if self.size > 0 && self.size + length > self.size_max {
            self.rotate()?;
        }
        // Counted also if it fails: a part may be there.
        self.size += length;
        self.file.write_all(line)
    }
}

/// A file name's stem and its extension with the dot.
fn name_of(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    (text(path.file_stem()), extension)
}

/// Readable by its owner only: what people ask for is in it.
fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn target(path: PathBuf) -> Target {
        Target { path: Some(path), size_max: 100, backups: Some(2) }
    }

    fn metrics_say(metrics: &Metrics, text: &str) -> bool {
        metrics.text().unwrap().contains(text)
    }

    #[test]
    fn everything_queued_is_in_the_file_when_the_log_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        std::fs::write(&path, "{\"cut\":").unwrap();
        let metrics = Arc::new(Metrics::default());
        let log = Log::open(Target { size_max: 1 << 20, ..target(path.clone()) }, Arc::clone(&metrics)).unwrap();
        for n in 0..100 {
            log.push(format!("{n}\n").into_bytes());
        }
        log.close();
        log.push(b"late\n".to_vec());
        let expected: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{{\"cut\":\n{expected}"));
        assert!(metrics_say(&metrics, "apiserver_audit_event_total 100"));
        assert!(metrics_say(&metrics, "apiserver_audit_error_total 1"), "what came too late is counted");
    }

    #[test]
    fn a_full_file_is_put_aside_and_only_so_many_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let other = folder.path().join("audit-of-somebody-else.log");
        std::fs::write(&other, "").unwrap();
        let mut file = Rotating::open(path.clone(), 100, Some(2)).unwrap();
        for n in 0..9 {
            file.write(format!("{n}{}\n", "x".repeat(58)).as_bytes()).unwrap();
        }
        let mut names: Vec<String> =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names.len(), 4, "{names:?}");
        let first = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap().chars().next();
        assert_eq!([first(&names[0]), first(&names[1]), first("audit.log")], [Some('6'), Some('7'), Some('8')]);
        assert!(other.exists(), "what is no backup of ours is left alone");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// Takes nothing until it is told to.
    struct Stuck(Receiver<()>);

    impl Output for Stuck {
        fn write(&mut self, _line: &[u8]) -> io::Result<()> {
            let _ = self.0.recv();
            Ok(())
        }
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_nobody_waits() {
        let (go, stuck) = sync_channel(0);
        let metrics = Arc::new(Metrics::default());
        let log = Log::start(Box::new(Stuck(stuck)), Arc::clone(&metrics)).unwrap();
        // One more than fits may already be with the writer.
        for _ in 0..QUEUE_EVENTS + 11 {
            log.push(b"x\n".to_vec());
        }
        assert!(metrics_say(&metrics, "apiserver_audit_error_total 1"), "{}", metrics.text().unwrap());
        log.push(vec![b'x'; QUEUE_BYTES + 1]);
        drop(go);
        log.close();
    }

    struct Full;

    impl Output for Full {
        fn write(&mut self, _line: &[u8]) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let metrics = Arc::new(Metrics::default());
        let log = Log::start(Box::new(Full), Arc::clone(&metrics)).unwrap();
        log.push(b"x\n".to_vec());
        log.push(b"y\n".to_vec());
        log.close();
        assert!(metrics_say(&metrics, "apiserver_audit_error_total 2"));
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_an_error() {
        assert!(Log::open(target("/no/such/folder/audit.log".into()), Arc::default()).is_err());
    }
}
