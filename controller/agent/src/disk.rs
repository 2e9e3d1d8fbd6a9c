//! The data directory: what lies there, and moving it out of the way without ever deleting a data set.
//!
//! It must not decide anything: [`crate::start`] does.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use jiff::Timestamp;

use crate::{
    lag::{self, Lag},
    last_save,
};

/// Redis' record of the cluster.
pub const NODES_FILE: &str = "nodes.conf";
/// The snapshot file.
pub const RDB_FILE: &str = "dump.rdb";
/// The directory of append-only files.
pub const AOF_DIR: &str = "appendonlydir";
/// What Redis writes to in it before the first file that counts: no manifest names it.
pub const UNNAMED: &str = "temp-appendonly.aof.incr";
/// Beginning of the names of quarantine directories.
pub const QUARANTINE: &str = "quarantine-";
/// Largest nodes.conf that is read: a thousand nodes with scattered slots take about 1 MB.
const NODES_MAX: u64 = 16 << 20;

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be read.
    #[error("read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or directory cannot be written or moved.
    #[error("write {path}: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What lies in the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Content of nodes.conf, if there is one.
    pub nodes: Option<Vec<u8>>,
    /// There is a snapshot file that is not empty.
    pub rdb: bool,
    /// There are append-only files with a manifest that hold something, or hold nothing because the data set is empty.
    pub aof: bool,
    /// How long ago the newest of the files was written that a start would load: append-only files, if there are any. `None`: nobody knows.
    pub written: Option<Duration>,
}

impl Survey {
    /// Whether there is a data set.
    #[must_use]
    pub fn holds_data(&self) -> bool {
        self.rdb || self.aof
    }
}

/// Looks at the data directory.
///
/// # Errors
/// When something in it cannot be read: unknown is not absent.
pub fn survey(dir: &Path) -> Result<Survey, Error> {
    let now = SystemTime::now();
    let nodes = nodes(&dir.join(NODES_FILE))?;
    let snapshot = metadata(&dir.join(RDB_FILE))?.filter(|file| file.len() > 0);
    let appended = append_only(dir)?;
    let age = |file: &fs::Metadata| Some(now.duration_since(file.modified().ok()?));
    // A file from the future (the clock was set back): a log was written just now, as far as anybody can tell, and of a snapshot nobody knows.
    let written = if appended.is_empty() {
        snapshot.iter().filter_map(age).find_map(Result::ok)
    } else {
        appended.iter().filter_map(age).map(Result::unwrap_or_default).min()
    };
    Ok(Survey { nodes, rdb: snapshot.is_some(), aof: !appended.is_empty(), written })
}

fn nodes(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match metadata(path)? {
        None => Ok(None),
        Some(file) if file.len() > NODES_MAX => {
            let source = io::Error::other(format!("{} bytes are more than the {NODES_MAX} allowed", file.len()));
            Err(Error::Read { path: path.to_owned(), source })
        }
        Some(_) => fs::read(path).map(Some).map_err(|source| Error::Read { path: path.to_owned(), source }),
    }
}

fn metadata(path: &Path) -> Result<Option<fs::Metadata>, Error> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}

/// The append-only files that hold something and may have a name in the manifest; none when there is no manifest, because Redis then ignores them.
/// Without the preamble an empty data set has empty files: they count where they hold every write, and a snapshot beside them is of before.
fn append_only(dir: &Path) -> Result<Vec<fs::Metadata>, Error> {
    let folder = dir.join(AOF_DIR);
    let failed = |source| Error::Read { path: folder.clone(), source };
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed(source)),
    };
    let mut manifest = false;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let file = entry.metadata().map_err(failed)?;
        if entry.file_name().to_string_lossy().ends_with(".manifest") {
            // The one that Redis is writing has another name until it is complete, and Redis does not read it.
            manifest |= file.len() > 0 && entry.file_name() == lag::MANIFEST;
        } else if file.is_file() && entry.file_name() != UNNAMED {
            files.push(file);
        }
    }
    let (filled, empty): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.len() > 0);
    Ok(if !manifest {
        Vec::new()
    } else if filled.is_empty() && last_save::is_log_whole(dir) && !Lag::read(dir)?.lags() {
        empty
    } else {
        filled
    })
}

/// Which snapshot file lies there: Redis writes each one anew and gives it the name at the end. `None`: none that could be looked at.
pub type Stamp = Option<(u64, SystemTime)>;

/// The one that lies there now.
#[must_use]
pub fn snapshot_stamp(dir: &Path) -> Stamp {
    let file = fs::metadata(dir.join(RDB_FILE)).ok()?;
    Some((file.ino(), file.modified().ok()?))
}

/// Whether a snapshot file was written between two looks: one that has vanished was not. Pure.
#[must_use]
pub fn is_newly_saved(before: Stamp, after: Stamp) -> bool {
    after.is_some() && after != before
}

/// Moves nodes.conf, the snapshot and the append-only files into a new directory beside them, where they stay until a
/// person removes them. Returns that directory; `None` when there was nothing to move.
///
/// # Errors
/// When a file cannot be moved; what was moved before stays moved, and the next attempt moves the rest.
pub fn quarantine(dir: &Path, now: Timestamp, names: &[&str]) -> Result<Option<PathBuf>, Error> {
    let present: Vec<&&str> = names.iter().filter(|name| dir.join(name).exists()).collect();
    if present.is_empty() {
        return Ok(None);
    }
    let target = dir.join(format!("{QUARANTINE}{}", now.as_millisecond()));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Write { path, source }
    };
    fs::create_dir_all(&target).map_err(failed(&target))?;
    for name in present {
        let from = dir.join(name);
        fs::rename(&from, target.join(name)).map_err(failed(&from))?;
    }
    sync_dir(dir)?;
    Ok(Some(target))
}

/// Writes a file, durably; what was there before stays until the new one is whole.
///
/// # Errors
/// When it cannot be written.
pub fn replace(dir: &Path, name: &str, content: &[u8]) -> Result<(), Error> {
    let (path, partial) = (dir.join(name), dir.join(format!("{name}.new")));
    let failed = |source| Error::Write { path: path.clone(), source };
    let file = fs::write(&partial, content).and_then(|()| fs::File::open(&partial)).map_err(failed)?;
    file.sync_all().and_then(|()| fs::rename(&partial, &path)).map_err(failed)?;
    sync_dir(dir)
}

/// Makes renames and new names in a directory durable.
///
/// # Errors
/// When the directory cannot be opened or synced.
pub fn sync_dir(dir: &Path) -> Result<(), Error> {
    let failed = |source| Error::Write { path: dir.to_owned(), source };
    fs::File::open(dir).map_err(failed)?.sync_all().map_err(failed)
}

/// Removes a file if it is there. Whether it was.
///
/// # Errors
/// When it is there and cannot be removed.
pub fn remove(dir: &Path, name: &str) -> Result<bool, Error> {
    let path = dir.join(name);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::Write { path, source }),
    }
}

/// Removes the snapshot file of a member that keeps nothing on disk: it was loaded, and from now on it would be a stale copy.
///
/// # Errors
/// When it is there and cannot be removed.
pub fn forget_snapshot(dir: &Path) -> Result<(), Error> {
    remove(dir, RDB_FILE)?;
    Ok(())
}

/// How many bytes may still be written there; `None`: nobody knows.
#[must_use]
pub fn room(dir: &Path) -> Option<u64> {
    let volume = rustix::fs::statvfs(dir).ok()?;
    Some(volume.f_bavail.saturating_mul(volume.f_frsize))
}

/// Removes the unfinished files of servers and their children that run no more, which nobody will finish and Redis never removes: on a full disk
/// they take the room that is missing. Whether there were any.
pub fn remove_leftovers(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    let mut is_any = false;
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(writer) else { continue };
        if runs_in(pid, dir) {
            continue;
        }
        match fs::remove_file(entry.path()) {
            Ok(()) => is_any = true,
            Err(error) => tracing::warn!(path = %entry.path().display(), %error, "an unfinished file stays"),
        }
    }
    is_any
}

/// Who writes a file that has not got its name yet: `temp-PID.rdb`, `temp-TIME.PID.rdb` of a replica, `temp-rewriteaof-PID.aof` and
/// `temp-rewriteaof-bg-PID.aof`. Pure.
fn writer(name: &str) -> Option<u32> {
    let part = name.strip_prefix("temp-")?;
    if let Some(log) = part.strip_prefix("rewriteaof-") {
        return log.strip_prefix("bg-").unwrap_or(log).strip_suffix(".aof")?.parse().ok();
    }
    let numbers = part.strip_suffix(".rdb")?;
    let (time, pid) = numbers.split_once('.').unwrap_or(("0", numbers));
    time.parse::<u64>().ok().and(pid.parse().ok())
}

/// Redis works in its data directory, and so do its children. Another process may have got the number since. A child that has just ended works
/// nowhere any more, and what it wrote gets its name once Redis has heard of it.
fn runs_in(pid: u32, dir: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    match (fs::read_link(process.join("cwd")), fs::canonicalize(dir)) {
        (Ok(works_in), Ok(dir)) => works_in == dir,
        (Err(error), _) => error.kind() != io::ErrorKind::NotFound || process.exists(),
        (Ok(_), Err(_)) => true,
    }
}

/// Whether what lies in a directory ends with the pod: it is the emptyDir `data` of its pod, by where the kubelet makes those. What cannot be
/// read stays.
#[must_use]
pub fn ends_with_the_pod(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| is_passing(&mounts, dir))
}

/// By the lines of proc_pid_mountinfo(5): `36 35 98:0 /root /mount/point options … - type source options`. Pure.
fn is_passing(mounts: &str, dir: &Path) -> bool {
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    let over = mounts.lines().filter_map(mount).filter(|(_, point)| dir.starts_with(point));
    // Of several at one place the last one covers those before it.
    over.max_by_key(|(_, point)| point.len())
        .is_some_and(|(root, _)| root.ends_with("/volumes/kubernetes.io~empty-dir/data"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn only_files_that_redis_would_load_count_as_data() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let holds = || survey(dir.path()).unwrap().holds_data();
        assert_eq!(survey(dir.path()).unwrap(), Survey { nodes: None, rdb: false, aof: false, written: None });
        fs::write(at(RDB_FILE), "").unwrap();
        assert!(!holds());
        fs::create_dir(at(AOF_DIR)).unwrap();
        fs::write(at("appendonlydir/appendonly.aof.1.incr.aof"), "x").unwrap();
        assert!(!holds(), "Redis ignores append-only files without a manifest");
        fs::write(at("appendonlydir/temp-appendonly.aof.manifest"), "x").unwrap();
        assert!(!holds(), "and one that was being written when it died");
        fs::write(at("appendonlydir/appendonly.aof.manifest"), "x").unwrap();
        assert!(survey(dir.path()).unwrap().aof);
        fs::write(at(RDB_FILE), "x").unwrap();
        assert!(survey(dir.path()).unwrap().rdb);
        let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
        let log = "appendonlydir/appendonly.aof";
        for (name, hours) in [(RDB_FILE, 2), (&format!("{log}.1.incr.aof"), 1), (&format!("{log}.manifest"), 3)] {
            fs::File::options().write(true).open(at(name)).unwrap().set_modified(now - hour * hours).unwrap();
        }
        let written = survey(dir.path()).unwrap().written.unwrap();
        assert!((hour..hour * 2).contains(&written), "the youngest file counts: {written:?}");
        // Neither is loaded: a snapshot beside append-only files, and what comes while other ones are first written.
        for name in [RDB_FILE, "appendonlydir/temp-appendonly.aof.incr"] {
            fs::write(at(name), "x").unwrap();
            assert!(survey(dir.path()).unwrap().written.unwrap() >= hour, "{name}");
        }
        let ahead = |name: &str| {
            fs::File::options().write(true).open(at(name)).unwrap().set_modified(SystemTime::now() + hour).unwrap();
            survey(dir.path()).unwrap().written
        };
        assert_eq!(ahead("appendonlydir/appendonly.aof.1.incr.aof"), Some(Duration::ZERO));
        fs::remove_dir_all(at(AOF_DIR)).unwrap();
        assert_eq!(ahead(RDB_FILE), None, "it may be of any time");
    }

    /// Before, the snapshot beside it came back, with keys whose deletion had been acknowledged.
    #[test]
    fn a_log_of_empty_files_is_an_empty_data_set_where_it_has_every_write() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, content: &str| fs::write(dir.path().join(name), content).unwrap();
        let counts = || survey(dir.path()).unwrap().aof;
        let manifest = "file appendonly.aof.2.base.aof seq 2 type b\nfile appendonly.aof.2.incr.aof seq 2 type i\n";
        fs::create_dir(dir.path().join(AOF_DIR)).unwrap();
        put(RDB_FILE, "of before");
        put("appendonlydir/appendonly.aof.manifest", manifest);
        put("appendonlydir/appendonly.aof.2.base.aof", "");
        assert!(!counts(), "one of the files is missing");
        put("appendonlydir/appendonly.aof.2.incr.aof", "");
        let found = survey(dir.path()).unwrap();
        assert!(found.aof && found.rdb && found.written.is_some());
        // What was sent anew lies in the snapshot alone until the file is written anew.
        let unnamed = format!("{AOF_DIR}/{UNNAMED}");
        put(&unnamed, "");
        assert!(!counts(), "the first one that is to count is being written");
        fs::remove_file(dir.path().join(unnamed)).unwrap();
        put(crate::lag::FILE, manifest);
        assert!(!counts(), "the volume says that they lag behind");
    }

    #[test]
    fn a_snapshot_that_has_vanished_was_not_saved() {
        let [first, second] = [1, 2].map(|file| Some((file, SystemTime::UNIX_EPOCH)));
        let saved = [(None, None), (first, first), (first, None), (None, first), (first, second)]
            .map(|(before, after)| is_newly_saved(before, after));
        assert_eq!(saved, [false, false, false, true, true]);
    }

    #[test]
    fn quarantine_keeps_every_byte() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_millisecond(5).unwrap();
        assert_eq!(quarantine(dir.path(), now, &[NODES_FILE]).unwrap(), None);
        fs::write(dir.path().join(NODES_FILE), "broken").unwrap();
        fs::create_dir(dir.path().join(AOF_DIR)).unwrap();
        fs::write(dir.path().join(AOF_DIR).join("a"), "data").unwrap();
        let moved = quarantine(dir.path(), now, &[NODES_FILE, RDB_FILE, AOF_DIR]).unwrap().unwrap();
        assert_eq!(moved, dir.path().join("quarantine-5"));
        assert_eq!(fs::read_to_string(moved.join(NODES_FILE)).unwrap(), "broken");
        assert_eq!(fs::read_to_string(moved.join(AOF_DIR).join("a")).unwrap(), "data");
        assert!(!dir.path().join(NODES_FILE).exists());
    }

    #[test]
    fn only_unfinished_files_of_who_runs_no_more_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut sleeper = std::process::Command::new("sleep").arg("60").current_dir(dir.path()).spawn().unwrap();
        let gone = u32::MAX / 2;
        let mut ended = std::process::Command::new("true").current_dir(dir.path()).spawn().unwrap();
        let (living, unheard, other) = (sleeper.id(), ended.id(), std::process::id());
        // As its parent has not asked how it ended, its number is still its own.
        while fs::read_link(format!("/proc/{unheard}/cwd")).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let [of_gone, of_living, of_unheard, of_other] = [gone, living, unheard, other].map(|pid| {
            [
                format!("{pid}.rdb"),
                format!("17.{pid}.rdb"),
                format!("rewriteaof-{pid}.aof"),
                format!("rewriteaof-bg-{pid}.aof"),
            ]
            .map(|name| format!("temp-{name}"))
        });
        let foreign = ["temp-.rdb", "temp-x.rdb", "temp-rewriteaof-1.rdb", "temp-1.aof", "temp-x.1.rdb", "dump.rdb"];
        let all = [&of_gone, &of_living, &of_unheard, &of_other].into_iter().flatten();
        for name in all.map(String::as_str).chain(foreign) {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        assert!(remove_leftovers(dir.path()) && !remove_leftovers(dir.path()));
        let stays = |name: &str| dir.path().join(name).exists();
        let stay = [of_gone, of_living, of_unheard, of_other].map(|names| names.map(|name| stays(&name)));
        sleeper.kill().unwrap();
        for child in [&mut sleeper, &mut ended] {
            child.wait().unwrap();
        }
        assert_eq!(stay, [[false; 4], [true; 4], [true; 4], [false; 4]]);
        assert_eq!(foreign.map(stays), [true; 6]);
    }

    #[test]
    fn a_volume_that_ends_with_its_pod_is_told_from_others() {
        let mounts = "\
            1 0 8:1 / / rw - overlay overlay rw\n\
            2 1 8:1 /var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/data /data rw shared:1 - ext4 /dev/sda1 rw\n\
            3 1 8:2 /var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount /kept rw - ext4 /dev/sdb rw\n\
            4 1 8:1 /pods/u/volumes/kubernetes.io~empty-dir/disk/pvs/pvc-2 /outer rw - ext4 /dev/sda1 rw\n\
            5 1 8:1 /opt/local-path/pvc-3 /local rw - ext4 /dev/sda1 rw\n\
            6 2 8:3 / /data/inner rw - ext4 /dev/sdc rw\n";
        let all = ["/data", "/data/redis", "/kept", "/outer", "/local", "/data/inner/x", "/database", "/etc"];
        let passing = all.map(|dir| is_passing(mounts, Path::new(dir)));
        assert_eq!(passing, [true, true, false, false, false, false, false, false]);
        assert!(!is_passing("", Path::new("/data")) && !is_passing("x - y\n", Path::new("/data")));
    }
}
