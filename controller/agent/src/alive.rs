//! How far the data set on a volume had come: a file beside it that is written again every few seconds.
//!
//! A volume may go back: a snapshot is restored to its claim, a storage system loses its last hours. Everything on it then agrees with
//! itself. What shows it is that others know later things of this member than its volume does. So a primary in service counts, on its
//! volume; its replicas ask its agent for the count and note it beside their copies. A primary whose volume says less than a replica has
//! noted came back on an older one. The number is told only once it is durable, and no clock takes part: those of nodes go wrong.

use std::{fs, net::IpAddr, path::Path, sync::Arc, time::Duration};

use resp::{Info, Node, NodeId};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    task::JoinHandle,
    time::Instant,
};
use types::agent::{Beat, CopyReport};

use crate::{
    disk::{self, Error},
    fellows::Word,
    handover,
    shared::Shared,
};

/// Name of the file.
pub const FILE: &str = "kun-alive.json";
/// Largest file that is read.
const MOST: u64 = 4096;
/// How often it is written: one sync of a hundred bytes, where Redis syncs every second. Also how often a replica asks.
const EVERY: Duration = Duration::from_secs(10);
/// How long the primary's agent may take to answer.
const ANSWER: Duration = Duration::from_millis(1000);

/// What the data set was, and how far it had come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Alive {
    /// A primary's own, or what the copy's primary had told.
    pub beat: Beat,
    /// The primary whose whole copy it was; absent: it was a primary's own.
    pub copy_of: Option<String>,
    /// The replication ID under which a primary served last; absent: it is a copy, or of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// In whose place a primary was elected, until that one follows it: that one may have all that it had then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_of: Option<String>,
}

impl Alive {
    /// In whose place the primary was elected.
    #[must_use]
    pub fn former(&self) -> Option<NodeId> {
        self.in_place_of.as_deref().and_then(|id| NodeId::parse(id).ok())
    }

    /// What is told of it to others.
    #[must_use]
    pub fn copy(&self) -> Option<CopyReport> {
        self.copy_of.clone().map(|of| CopyReport { of, beat: self.beat })
    }
}

/// Reads the file. One that is not legible says nothing, and must not keep the data set beside it from being served.
#[must_use]
pub fn read(dir: &Path) -> Option<Alive> {
    let path = dir.join(FILE);
    let size = match fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        found => found.map(|file| file.len()),
    };
    let content = size.and_then(|size| if size > MOST { Ok(Vec::new()) } else { fs::read(&path) });
    match content.map_err(|error| error.to_string()).and_then(|bytes| parse(&bytes)) {
        Ok(alive) => Some(alive),
        Err(error) => {
            tracing::warn!(path = %path.display(), error, "the volume does not say how far its data set had come");
            None
        }
    }
}

/// Whether it was written after a data set of this age. Of one of an unknown age it counts as later. Both times are the file system's.
#[must_use]
pub fn is_later(dir: &Path, written: Option<Duration>) -> bool {
    let age = fs::metadata(dir.join(FILE)).and_then(|file| file.modified()).ok().map(|at| at.elapsed());
    match (age, written) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(age), Some(written)) => age.unwrap_or_default() < written,
    }
}

fn parse(bytes: &[u8]) -> Result<Alive, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// Writes the file, durably.
///
/// # Errors
/// When it cannot be written.
pub fn write(dir: &Path, alive: &Alive) -> Result<(), Error> {
    let failed = |error| Error::Write { path: dir.join(FILE), source: std::io::Error::other(error) };
    disk::replace(dir, FILE, &serde_json::to_vec(alive).map_err(failed)?)
}

/// As what its data set is in service; `None`: as nothing that could be relied on later. Pure.
///
/// A primary's counts, from its first slot on its way to it on, unless its file lags behind its memory since it was sent everything anew ([`crate::lag`]). A replica's counts while its link
/// is up and its own disk holds what its memory holds, so only where every write is kept.
#[must_use]
pub fn service(info: &Info, table: &[Node], keeps_every_write: bool, lags: bool) -> Option<Service> {
    let myself = table.iter().find(|node| node.flags.myself)?;
    match (&myself.primary, info.get("role")?) {
        (None, "master") => {
            let stream = info.get("master_replid").map(str::to_owned);
            let service = Service::Primary { me: myself.id.clone(), epoch: myself.config_epoch, stream };
            let has_what_others_lack = !myself.slots.is_empty() || !myself.importing.is_empty();
            (has_what_others_lack && !lags).then_some(service)
        }
        (Some(primary), "slave") => {
            let is_whole = info.get("master_link_status") == Some("up")
                && info.flag("master_sync_in_progress") == Some(false)
                && keeps_every_write
                && handover::behind(info, keeps_every_write).is_none();
            let at = table.iter().find(|node| node.id == *primary)?.address?.ip();
            is_whole.then(|| Service::CopyOf { primary: primary.clone(), at })
        }
        // The two roles differ for a moment.
        _ => None,
    }
}

/// What a data set serves as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// A primary's own.
    Primary {
        /// The primary.
        me: NodeId,
        /// Its configuration epoch.
        epoch: u64,
        /// Its replication ID: another one after each start and each take-over.
        stream: Option<String>,
    },
    /// A whole copy.
    CopyOf {
        /// The primary's.
        primary: NodeId,
        /// Where its agent answers.
        at: IpAddr,
    },
}

/// Keeps the file up to date, beside the looks: neither a disk that stands still nor a primary's agent that is silent may keep them.
#[derive(Debug, Default)]
pub struct Keeper {
    /// What was begun last, and when.
    last: Option<(Service, Instant)>,
    /// In whose place it was elected, as was last written. Also once a snapshot that was begun before is complete: it is no later than that.
    noted: Option<Former>,
    /// The answer of the primary's agent.
    asking: Option<oneshot::Receiver<Beat>>,
    writing: Option<JoinHandle<()>>,
}

/// In whose place a member was elected, or would be now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    /// Whom it follows, or followed before it led.
    pub id: NodeId,
    /// When the last snapshot was saved, as Redis says it, at the first look since it leads at which none was being written: of a later one all is later. Absent:
    /// there was no such look yet.
    pub saved: Option<String>,
}

impl Former {
    /// As it was noted by an agent of before.
    #[must_use]
    pub const fn noted(id: NodeId) -> Self {
        Self { id, saved: None }
    }

    /// What is true of this look. Not of one that follows this member by now, of one that nobody knows any more, nor where a snapshot was saved since: that
    /// has what the other one had. Pure.
    #[must_use]
    pub fn after(before: Option<Self>, table: &[Node], info: &Info) -> Option<Self> {
        let myself = table.iter().find(|node| node.flags.myself)?;
        if let Some(primary) = &myself.primary {
            return Some(Self::noted(primary.clone()));
        }
        let before = before?;
        let is_idle = info.flag("rdb_bgsave_in_progress") == Some(false);
        let saved = info.get("rdb_last_save_time").filter(|_| is_idle || before.saved.is_some()).map(str::to_owned);
        let is_open = table.iter().any(|node| node.id == before.id && node.primary.as_ref() != Some(&myself.id));
        let is_older = before.saved.is_none() || before.saved == saved;
        (is_open && is_older).then(|| Self { saved: before.saved.or(saved), ..before })
    }
}

impl Keeper {
    /// Notes what one look has shown.
    pub fn note(&mut self, shared: &Arc<Shared>, service: Option<Service>, former: Option<&Former>) {
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            return;
        }
        if !matches!(service, Some(Service::Primary { .. })) {
            shared.set_serves(None);
        }
        if self.last.as_ref().map(|(last, _)| last) != service.as_ref() || self.noted.as_ref() != former {
            // What was told belongs to a copy that this may not be any more.
            (self.last, self.asking, self.noted) = (None, None, former.cloned());
        }
        let Some(service) = service else { return };
        match (&service, self.answered()) {
            (Service::CopyOf { primary, .. }, Some(beat)) => {
                // The copy has been whole before the question, and is now.
                let alive = Alive { beat, copy_of: Some(primary.to_string()), stream: None, in_place_of: None };
                return self.write(shared, alive, None);
            }
            (Service::CopyOf { .. } | Service::Primary { .. }, _) => {}
        }
        if self.last.as_ref().is_some_and(|(_, at)| at.elapsed() < EVERY) {
            return;
        }
        self.last = Some((service.clone(), Instant::now()));
        match service {
            Service::Primary { me, epoch, stream } => {
                let beat = shared.next_beat(epoch);
                let serves = CopyReport { of: me.to_string(), beat };
                let in_place_of = self.noted.as_ref().map(|former| former.id.to_string());
                self.write(shared, Alive { beat, copy_of: None, stream, in_place_of }, Some(serves));
            }
            Service::CopyOf { primary, at } => self.asking = Some(ask(shared, primary, at)),
        }
    }

    /// What the primary's agent has told, once.
    fn answered(&mut self) -> Option<Beat> {
        match self.asking.as_mut()?.try_recv() {
            Ok(beat) => {
                self.asking = None;
                Some(beat)
            }
            Err(TryRecvError::Closed) => {
                self.asking = None;
                None
            }
            Err(TryRecvError::Empty) => None,
        }
    }

    /// Nothing is told before it is durable.
    fn write(&mut self, shared: &Arc<Shared>, alive: Alive, serves: Option<CopyReport>) {
        let shared = Arc::clone(shared);
        self.writing = Some(tokio::task::spawn_blocking(move || match write(&shared.options.data_dir, &alive) {
            Ok(()) => {
                shared.set_alive(Some(alive));
                shared.set_serves(serves);
            }
            Err(error) => tracing::warn!(%error, "the volume does not say any more how far its data set has come"),
        }));
    }
}

/// Asks the agent of `primary` how far it has come; silent if that agent is, or its primary is not in service.
fn ask(shared: &Arc<Shared>, primary: NodeId, at: IpAddr) -> oneshot::Receiver<Beat> {
    let (told, answer) = oneshot::channel();
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let word = tokio::time::timeout(ANSWER, shared.fellows.ask(at)).await;
        if let Ok(Ok(Word::Report(report))) = word
            && let Some(serves) = report.serves.filter(|serves| serves.of == primary.as_str())
        {
            // Nobody waits any more if the copy is another's by now.
            let _ = told.send(serves.beat);
        }
    });
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_volume_says_how_far_it_had_come_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), None);
        let mut alive =
            Alive { beat: Beat { epoch: 5, count: 7 }, copy_of: Some("a".repeat(40)), stream: None, in_place_of: None };
        write(dir.path(), &alive).unwrap();
        assert_eq!(read(dir.path()).as_ref(), Some(&alive));
        assert_eq!(alive.copy(), Some(CopyReport { of: "a".repeat(40), beat: alive.beat }));
        (alive.copy_of, alive.stream) = (None, Some("8371445e".to_owned()));
        assert_eq!(alive.copy(), None);
        write(dir.path(), &alive).unwrap();
        assert_eq!(read(dir.path()).as_ref(), Some(&alive));
        // As an earlier release wrote it.
        fs::write(dir.path().join(FILE), r#"{"beat":{"epoch":5,"count":7},"copyOf":null}"#).unwrap();
        assert_eq!(read(dir.path()), Some(Alive { stream: None, ..alive }));
        for illegible in ["{", r#"{"atMillis":5000,"copyOf":null}"#, ""] {
            fs::write(dir.path().join(FILE), illegible).unwrap();
            assert_eq!(read(dir.path()), None);
        }
        fs::remove_file(dir.path().join(FILE)).unwrap();
        fs::create_dir(dir.path().join(FILE)).unwrap();
        assert_eq!(read(dir.path()), None, "it cannot be read at all");
    }

    #[test]
    fn what_was_written_after_it_was_in_service_lacks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let hour = Duration::from_secs(3600);
        let says = |dir: &Path| [Some(Duration::ZERO), Some(hour), None].map(|written| is_later(dir, written));
        assert_eq!(says(dir.path()), [false; 3], "it does not say");
        write(dir.path(), &Alive { beat: Beat { epoch: 5, count: 7 }, copy_of: None, stream: None, in_place_of: None })
            .unwrap();
        assert_eq!(says(dir.path()), [false, true, true]);
    }

    /// An agent whose volume is that folder.
    fn agent(data_dir: &Path) -> Arc<Shared> {
        let authority = certs::Authority::create("agents").unwrap();
        let authorities_pem = authority.certificate_pem().to_owned();
        let certificates = certs::Reloading::new(certs::Material { identity: None, authorities_pem }).unwrap();
        let options = crate::config::Options { data_dir: data_dir.to_owned(), ..crate::render::tests::options() };
        Shared::new(options, crate::render::tests::inputs(), &certificates).unwrap()
    }

    #[tokio::test]
    async fn a_primary_tells_what_is_durable_and_nothing_higher() {
        let dir = tempfile::tempdir().unwrap();
        let shared = agent(dir.path());
        shared.set_alive(Some(Alive {
            beat: Beat { epoch: 5, count: 7 },
            copy_of: None,
            stream: None,
            in_place_of: None,
        }));
        shared.outgrow(Beat { epoch: 5, count: 9 });
        let me = NodeId::parse(&"a".repeat(40)).unwrap();
        let note = async |epoch| {
            let mut keeper = Keeper::default();
            keeper.note(&shared, Some(Service::Primary { me: me.clone(), epoch, stream: None }), None);
            keeper.writing.unwrap().await.unwrap();
        };
        note(6).await;
        let beat = Beat { epoch: 6, count: 10 };
        assert_eq!(
            read(dir.path()),
            Some(Alive { beat, copy_of: None, stream: None, in_place_of: None }),
            "it follows what replicas have noted"
        );
        assert_eq!(shared.told().serves, None, "it is not in service yet");
        shared.enter(types::agent::AgentPhase::Running, None);
        let told = Some(CopyReport { of: me.to_string(), beat });
        assert_eq!(shared.told().serves, told);
        // As on a disk that is full.
        drop(dir);
        note(6).await;
        assert_eq!(shared.told().serves, told);
        Keeper::default().note(&shared, None, None);
        assert_eq!(shared.told().serves, None, "it is no primary any more");
    }

    #[tokio::test]
    async fn a_primary_notes_a_new_history_at_once_and_else_now_and_then() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, mut keeper) = (agent(dir.path()), Keeper::default());
        let me = NodeId::parse(&"a".repeat(40)).unwrap();
        for (stream, count) in [("first", 1), ("second", 2)] {
            let stream = Some(stream.to_owned());
            let service = Service::Primary { me: me.clone(), epoch: 6, stream: stream.clone() };
            keeper.note(&shared, Some(service.clone()), None);
            keeper.writing.take().unwrap().await.unwrap();
            let noted = Alive { beat: Beat { epoch: 6, count }, copy_of: None, stream, in_place_of: None };
            assert_eq!(read(dir.path()), Some(noted));
            keeper.last = Some((service.clone(), Instant::now()));
            keeper.note(&shared, Some(service), None);
            assert!(keeper.writing.is_none(), "it was written just now");
        }
    }

    #[tokio::test]
    async fn a_primary_notes_in_whose_place_it_was_elected_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, mut keeper) = (agent(dir.path()), Keeper::default());
        let [me, other] = [1, 2].map(|last| NodeId::parse(&format!("{last:040x}")).unwrap());
        let service = Service::Primary { me, epoch: 6, stream: None };
        let (elected, saved) = (Former::noted(other.clone()), Former { id: other, saved: Some("1".to_owned()) });
        for former in [None, Some(&elected), Some(&saved), None] {
            keeper.note(&shared, Some(service.clone()), former);
            keeper.writing.take().unwrap().await.unwrap();
            assert_eq!(read(dir.path()).unwrap().former().as_ref(), former.map(|former| &former.id));
        }
    }

    #[test]
    fn whom_it_followed_is_its_former_primary_until_that_one_follows_or_all_is_saved() {
        let [me, other] = [1, 2].map(|last| NodeId::parse(&format!("{last:040x}")).unwrap());
        let while_saving = |before: &Option<Former>, mine: &str, others: &str, saved: u8, saves: u8| {
            let text = format!("{me} 127.84.0.1:6379@16379 myself,{mine} connected\n{others}\n");
            let info = Info::parse(&format!("rdb_bgsave_in_progress:{saves}\nrdb_last_save_time:{saved}\n"));
            Former::after(before.clone(), &resp::nodes::parse(&text).unwrap(), &info)
        };
        let after =
            |before: &Option<Former>, mine: &str, others: &str, saved| while_saving(before, mine, others, saved, 0);
        let line = |what: &str| format!("{other} 127.84.0.2:6379@16379 {what} connected");
        let (led, leads, dead) = (format!("slave {other} 0 0 2"), "master - 0 0 3", line("master,fail - 0 0 2"));
        let follows = after(&None, &led, &line("master - 0 0 2"), 1);
        assert_eq!(follows, Some(Former::noted(other.clone())));
        assert_eq!(
            while_saving(&follows, leads, &dead, 1, 1),
            follows,
            "what is being written may have been begun before"
        );
        let elected = after(&follows, leads, &dead, 1);
        assert_eq!(elected, Some(Former { id: other.clone(), saved: Some("1".to_owned()) }));
        assert_eq!(
            [0, 1].map(|saves| while_saving(&elected, leads, &dead, 1, saves)),
            [elected.clone(), elected.clone()]
        );
        assert_eq!(after(&elected, leads, &dead, 2), None, "a snapshot has been saved since");
        assert_eq!(after(&elected, leads, &line(&format!("slave {me} 0 0 3")), 1), None, "it follows");
        assert_eq!(after(&elected, leads, "", 1), None, "it was forgotten");
        assert_eq!(after(&None, leads, &dead, 1), None, "it is another shard's");
    }

    #[test]
    fn a_later_primary_has_come_further_whatever_the_count() {
        let beat = |epoch, count| Beat { epoch, count };
        assert!(beat(5, 100) < beat(5, 101));
        assert!(beat(5, 100) < beat(6, 1));
    }

    #[test]
    fn only_a_leader_or_a_copy_that_is_whole_on_disk_is_in_service() {
        let table = |me: &str| {
            let other = format!("{:040x} 127.84.0.2:6379@16379 master - 0 0 2 connected 6-9", 2);
            resp::nodes::parse(&format!("{:040x} 127.84.0.1:6379@16379 myself,{me}\n{other}\n", 1)).unwrap()
        };
        let (primary, replica) =
            (table("master - 0 0 1 connected 0-5"), table(&format!("slave {:040x} 0 0 2 connected", 2)));
        let says = |text: &str, table: &[Node]| service(&Info::parse(text), table, true, false);
        let synced = "role:slave\nmaster_link_status:up\nmaster_sync_in_progress:0\naof_enabled:1\n";
        let [me, of] = [1, 2].map(|last| NodeId::parse(&format!("{last:040x}")).unwrap());
        let leads = "role:master\nmaster_replid:8371445e\naof_enabled:1\n";
        let leading = Some(Service::Primary { me, epoch: 1, stream: Some("8371445e".to_owned()) });
        assert_eq!(says(leads, &primary), leading);
        assert_eq!(says(leads, &table("master - 0 0 1 connected")), None);
        assert_eq!(says(leads, &table(&format!("master - 0 0 1 connected [7-<-{:040x}]", 2))), leading);
        assert_eq!(says(&format!("{leads}aof_rewrite_in_progress:1\n"), &primary), leading);
        // A restart would load what was there before.
        assert_eq!(service(&Info::parse(leads), &primary, true, true), None);
        assert_eq!(says(synced, &replica), Some(Service::CopyOf { primary: of, at: [127, 84, 0, 2].into() }));
        assert_eq!(service(&Info::parse(synced), &replica, false, false), None, "what it keeps on disk is older");
        for (from, to) in [(":up", ":down"), ("progress:0", "progress:1"), ("aof_enabled:1", "aof_enabled:0")] {
            assert_eq!(says(&synced.replace(from, to), &replica), None, "{to}");
        }
        assert_eq!(says(&format!("{synced}aof_rewrite_in_progress:1\n"), &replica), None);
        assert_eq!(says(synced, &primary), None);
    }
}
