//! What the parts of one agent share: its options, its phase, its Redis, and the controller's word.

use std::net::SocketAddr;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

use certs::Reloading;
use jiff::Timestamp;
use resp::{Connection, Credentials, Error as RedisError, Info};
use tokio::sync::{Semaphore, watch};
use types::agent::{AgentPhase, AgentReport, Beat, CopyReport, FollowReport, LossReport, ReleaseHow};

use crate::{
    alive::Alive,
    config::{Inputs, Options, Secret},
    fellows::Fellows,
    handover::Log,
    local::Local,
    marker::Member,
    parameters::Trials,
    peers::Asker,
    persistence::Awaited,
    promotion::Standing,
    ran::Known,
};

/// Backups stream one at a time: each costs Redis a fork.
const SNAPSHOTS_AT_ONCE: usize = 1;
/// How long Redis may take to change users.
const USERS_DEADLINE: Duration = Duration::from_secs(2);

/// How far the own data set had come.
#[derive(Debug, Default)]
struct Kept {
    /// As its volume says.
    alive: Option<Alive>,
    /// As a primary in service tells its replicas.
    serves: Option<CopyReport>,
    /// As replicas have noted.
    noted: Beat,
    /// As a replica: what it has of its primary.
    standing: Option<Standing>,
    /// A snapshot that is to be there before append-only files go.
    awaited: Option<Awaited>,
    /// What redis-server last said of its append-only file.
    log: Option<Log>,
    /// Which nodes ran here.
    ran: Known,
    /// Inputs that were begun to be applied since those in use were.
    begun: Vec<Inputs>,
}

/// Shared by all tasks.
#[derive(Debug)]
pub struct Shared {
    /// The environment.
    pub options: Options,
    /// What may change: agent.json and passwords.
    pub inputs: watch::Sender<Arc<Inputs>>,
    /// The own Redis.
    pub local: Local,
    /// What is reported.
    pub report: watch::Sender<AgentReport>,
    /// The controller's word on a held member.
    pub released: watch::Sender<Option<ReleaseHow>>,
    /// Permits to stream a snapshot.
    pub snapshots: Arc<Semaphore>,
    /// Password of [`types::names::USER_LOCAL`].
    pub own: Secret,
    /// How other agents of the cluster are reached.
    pub fellows: Fellows,
    /// How far the own data set had come.
    kept: Mutex<Kept>,
    /// Parameters that are being tried, or were refused.
    pub trials: Trials,
    /// What lies in the data directory is there for the next pod.
    pub volume_stays: bool,
    /// The user of replication is switched on; it stays so for as long as the process runs.
    replicas: AtomicBool,
    /// Replicas of earlier releases are let in with the cluster's password.
    old_replicas: AtomicBool,
    /// What redis-server saved last is not yet what it loads: no word on a held member counts until it is.
    last_save_waits: AtomicBool,
}

fn redis_of(options: &Options) -> SocketAddr {
    SocketAddr::new(options.pod_ip, types::names::PORT_REDIS)
}

impl Shared {
    /// An agent that is about to begin.
    ///
    /// # Errors
    /// When no other agent could be believed.
    pub fn new(options: Options, inputs: Inputs, certificates: &Reloading) -> certs::Result<Arc<Self>> {
        let own = types::names::agent_user(&inputs.config.namespace, &inputs.config.cluster);
        let fellows = Fellows::new(certificates, own)?;
        let inputs = watch::Sender::new(Arc::new(inputs));
        let address = redis_of(&options);
        Ok(Arc::new(Self {
            local: Local::new(address, inputs.subscribe()),
            report: watch::Sender::new(AgentReport {
                pod: options.pod_name.clone(),
                phase: AgentPhase::Starting,
                held_because: None,
                node_id: None,
                holds_data: false,
                starts: 0,
                copy: None,
                serves: None,
                refused: None,
                settled: None,
                following: None,
                lags: None,
                altered: std::collections::BTreeMap::new(),
                not_set: std::collections::BTreeMap::new(),
                runs_at: None,
                takes_no_release: false,
                waits_for: None,
                volume_in_use_millis: None,
                ended: Vec::new(),
                lost: None,
            }),
            released: watch::Sender::new(None),
            snapshots: Arc::new(Semaphore::new(SNAPSHOTS_AT_ONCE)),
            own: Secret::random(),
            fellows,
            kept: Mutex::default(),
            trials: Trials::default(),
            volume_stays: !crate::disk::ends_with_the_pod(&options.data_dir),
            replicas: AtomicBool::new(false),
            old_replicas: AtomicBool::new(false),
            last_save_waits: AtomicBool::new(false),
            inputs,
            options,
        }))
    }

    /// A connection to the own Redis that may change users, and close out who uses them.
    ///
    /// # Errors
    /// When Redis does not answer or refuses the password.
    pub(crate) async fn open_for_users(&self) -> Result<Connection, RedisError> {
        let user = Credentials::new(types::names::USER_LOCAL, self.own.expose());
        self.local.open_as(user, USERS_DEADLINE).await
    }

    /// The name on the certificates of this cluster's agents.
    #[must_use]
    pub fn own_name(&self) -> String {
        let config = &self.inputs().config;
        types::names::agent_user(&config.namespace, &config.cluster)
    }

    /// Where the own Redis listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        redis_of(&self.options)
    }

    /// What is told to those who ask.
    #[must_use]
    pub fn told(&self) -> AgentReport {
        let kept = self.kept();
        let copy = kept.alive.as_ref().and_then(Alive::copy);
        // One that is not in service may be older than what its replicas have noted.
        let serves = kept.serves.clone().filter(|_| self.phase() == AgentPhase::Running);
        let millis = |at: Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let following = kept.standing.as_ref().map(|standing| FollowReport {
            of: standing.of.to_string(),
            current_millis: standing.current.map(millis),
            held_back: standing.held_back,
        });
        let ended = kept.ran.told();
        drop(kept);
        let takes_no_release = self.last_save_waits();
        AgentReport { copy, serves, following, ended, takes_no_release, ..self.report.borrow().clone() }
    }

    /// What the own Redis has of its primary.
    pub fn note_standing(&self, standing: Option<Standing>) {
        self.kept().standing = standing;
    }

    /// Which nodes ran here.
    pub(crate) fn with_ran<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.kept().ran)
    }

    /// What redis-server says of its append-only file, if it does.
    pub fn note_log(&self, info: &Info) -> Option<Log> {
        let log = info.flag("aof_enabled").map(|_| info.append_only_file())?;
        self.kept().log = Some(log);
        Some(log)
    }

    /// What redis-server last said of its append-only file. Of one that was being written anew then nothing is known now.
    #[must_use]
    pub fn last_log(&self) -> Option<Log> {
        self.kept().log.filter(|log| *log != Log::Rewriting)
    }

    /// The snapshot that append-only files wait for.
    #[must_use]
    pub fn awaited_snapshot(&self) -> Option<Awaited> {
        self.kept().awaited
    }

    /// They wait for this one, or for none.
    pub fn await_snapshot(&self, awaited: Option<Awaited>) {
        self.kept().awaited = awaited;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The volume says this of its data set.
    pub fn set_alive(&self, alive: Option<Alive>) {
        self.kept().alive = alive;
    }

    /// This primary is in service, and that lies on its volume; or it is none.
    pub fn set_serves(&self, serves: Option<CopyReport>) {
        self.kept().serves = serves;
    }

    /// A replica has noted this beat of the own data set: those to come must be greater, whatever the volume says.
    pub fn outgrow(&self, beat: Beat) {
        let mut kept = self.kept();
        kept.noted = kept.noted.max(beat);
    }

    /// The beat of a primary at this configuration epoch that follows all that are known.
    #[must_use]
    pub fn next_beat(&self, epoch: u64) -> Beat {
        let kept = self.kept();
        let last = kept.alive.as_ref().map(|alive| alive.beat).unwrap_or_default().max(kept.noted);
        Beat { epoch: epoch.max(last.epoch), count: last.count.saturating_add(1) }
    }

    /// Whether replicas are let in.
    #[must_use]
    pub fn lets_replicas_in(&self) -> bool {
        self.replicas.load(Ordering::Relaxed)
    }

    /// From now on they are.
    pub fn let_replicas_in(&self) {
        self.replicas.store(true, Ordering::Relaxed);
    }

    /// Whether replicas of earlier releases are let in.
    #[must_use]
    pub fn lets_old_in(&self) -> bool {
        self.old_replicas.load(Ordering::Relaxed)
    }

    /// From now on they are, or are not.
    pub fn let_old_in(&self, lets: bool) {
        self.old_replicas.store(lets, Ordering::Relaxed);
    }

    /// Whether what redis-server saved last is not yet what it loads.
    #[must_use]
    pub fn last_save_waits(&self) -> bool {
        self.last_save_waits.load(Ordering::Relaxed)
    }

    /// From now on it does, or does not. Whether it did before.
    pub fn let_last_save_wait(&self, waits: bool) -> bool {
        self.last_save_waits.swap(waits, Ordering::Relaxed)
    }

    /// Whose data this pod's volume is to hold.
    #[must_use]
    pub fn member(&self) -> Member {
        let Options { pod_name, pod_namespace, .. } = &self.options;
        let cluster = self.inputs().config.cluster.clone();
        Member { namespace: pod_namespace.clone(), cluster, pod: pod_name.clone() }
    }

    /// The inputs of now.
    #[must_use]
    pub fn inputs(&self) -> Arc<Inputs> {
        self.inputs.borrow().clone()
    }

    /// Inputs that may be in use in part: they were begun to be applied, and that broke off.
    pub(crate) fn begun(&self) -> Vec<Inputs> {
        self.kept().begun.clone()
    }

    /// These are begun to be applied.
    pub(crate) fn begin(&self, new: &Inputs) {
        let mut kept = self.kept();
        if !kept.begun.contains(new) {
            kept.begun.push(new.clone());
        }
    }

    /// The inputs of now are in use, and nothing else is.
    pub(crate) fn end_begun(&self) {
        self.kept().begun.clear();
    }

    /// The phase of now.
    #[must_use]
    pub fn phase(&self) -> AgentPhase {
        self.report.borrow().phase
    }

    /// For how long another agent's lock on the volume has been waited for; `None`: it is not.
    pub fn waits_for_volume(&self, waited: Option<Duration>) {
        let millis = waited.map(|waited| u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        self.report.send_if_modified(|report| std::mem::replace(&mut report.volume_in_use_millis, millis) != millis);
    }

    /// Enters a phase; a reason belongs to Held, to Starting on an image that cannot be used, and to Stopping where nothing can be saved.
    pub fn enter(&self, phase: AgentPhase, held_because: Option<String>) {
        if phase != AgentPhase::Starting {
            self.tell_wait(None);
        }
        self.report.send_if_modified(|report| {
            let changed = report.phase != phase || report.held_because != held_because;
            if changed {
                tracing::info!(?phase, reason = held_because.as_deref().unwrap_or_default(), "phase");
                (report.phase, report.held_because) = (phase, held_because);
            }
            changed
        });
    }

    /// Tells what a start waits for, or that it waits no more.
    pub fn tell_wait(&self, waits_for: Option<String>) {
        self.report.send_if_modified(|report| std::mem::replace(&mut report.waits_for, waits_for.clone()) != waits_for);
    }

    /// Tells what a start costs, for as long as this process runs.
    pub fn tell_loss(&self, what: String) {
        let at = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        self.report.send_modify(|report| report.lost = Some(LossReport { at, what }));
    }

    /// How this agent reaches other members.
    #[must_use]
    pub fn asker(&self) -> Asker {
        Asker { source: self.options.pod_ip, credentials: self.local.credentials(), fellows: self.fellows.clone() }
    }
}
