//! Runs the controller: follows the API server, keeps the queue, and reconciles a bounded number of clusters at a time
//! while it holds the lease. A panic in one reconcile ends that reconcile and nothing else.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use types::{RedisBackup, RedisCluster, RedisOperation};

use crate::api::Kubernetes;
use crate::backup::Refusals;
use crate::cache::Caches;
use crate::credentials::SystemIssuer;
use crate::events::Events;
use crate::follow::follow;
use crate::lease::{self, Guard};
use crate::metrics::Metrics;
use crate::probe::agent::Agents;
use crate::queue::{Key, Next, Queue, SETTLE};
use crate::reconcile::{Context, DEADLINE, Held, Locals, reconcile};
use crate::report::Reach;

/// Clusters reconciled at the same time. Each holds a connection per member for some milliseconds; 16 clusters of six
/// are a hundred sockets.
const AT_ONCE: usize = 16;
/// Wake-ups waiting to be put into the queue; watches wait when it is full.
const WAKE: usize = 1024;
/// How long running reconciles may take to end when we are asked to stop.
const STOPPING: Duration = Duration::from_secs(5);
/// While somebody else leads, or the caches are filling.
const IDLE: Duration = Duration::from_millis(20);

/// Why the controller ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The watches ended, which they never do by themselves.
    #[error("the watches ended")]
    Watches,
}

/// What the controller needs to run.
pub struct Options {
    /// The API server, as `kun:controller`.
    pub client: kube::Client,
    /// Signs the agents' certificates and our own towards them; followed when it turns.
    pub agents: watch::Receiver<Arc<certs::Ring>>,
    /// Namespace of the lease, which is our own.
    pub namespace: String,
    /// Our name in the lease. A process that takes over from its own predecessor (standalone) uses the same name and
    /// need not wait for the lease to expire.
    pub identity: String,
    /// Image that holds `kun`, for the init container of pods.
    pub kun_image: String,
    /// How clients reach the members: what `status.endpoints` lists. Whoever starts the controller knows its host; the
    /// controller does not ask.
    pub reach: Reach,
    /// For tests: the process exits with 137 right after this many writes to the API server were answered.
    pub failpoint: Option<u64>,
    /// What is counted.
    pub metrics: Metrics,
    /// What the API server holds, as far as we were told: whoever starts the controller may ask what is missing.
    pub caches: Arc<Caches>,
    /// How much one batch may do.
    pub limits: plan::Limits,
}

impl Options {
    /// With names of Services as endpoints, no failpoint, fresh metrics and the planner's own limits.
    #[must_use]
    pub fn new(
        client: kube::Client,
        agents: watch::Receiver<Arc<certs::Ring>>,
        namespace: String,
        identity: String,
        kun_image: String,
    ) -> Self {
        Self {
            client,
            agents,
            namespace,
            identity,
            kun_image,
            reach: Reach::default(),
            failpoint: None,
            metrics: Metrics::default(),
            caches: Arc::default(),
            limits: plan::Limits::default(),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Runs until `shutdown` completes; then running reconciles end and the lease is given back.
///
/// # Errors
/// When the watches end.
pub async fn run(options: Options, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let Options { client, agents, namespace, identity, kun_image, reach, failpoint, metrics, caches, limits } = options;
    let guard = Guard::new();
    let (events, writer) = Events::new(client.clone(), identity.clone());
    let context = Arc::new(Context {
        kubernetes: Kubernetes::new(client.clone(), Arc::clone(&caches), guard.clone(), failpoint),
        issuer: Arc::new(SystemIssuer::new(agents.clone())),
        agents: Agents::new(agents),
        events,
        metrics,
        kun_image,
        namespace: namespace.clone(),
        reach,
        limits,
        locals: Locals::default(),
        held: Held::default(),
        refusals: Refusals::default(),
    });
    let stop = CancellationToken::new();
    let election = tokio::spawn(lease::hold(
        client.clone(),
        lease::Name::of_controller(&namespace),
        identity,
        guard,
        stop.clone(),
    ));
    let (wake, woken) = mpsc::channel(WAKE);
    let mut background = watches(&client, &caches, &wake);
    background.spawn(writer.run());
    let (end, ending) = tokio::sync::oneshot::channel();
    let working = work(&context, woken, ending);
    let mut working = std::pin::pin!(working);
    let outcome = tokio::select! {
        () = shutdown => {
            // Nobody listens only if the work has ended already.
            let _ = end.send(());
            tokio::time::timeout(STOPPING, working).await.unwrap_or(Ok(()))
        }
        outcome = &mut working => outcome,
    };
    stop.cancel();
    background.abort_all();
    if let Err(error) = election.await {
        tracing::warn!(%error, "the election ended badly");
    }
    outcome
}

fn watches(client: &kube::Client, caches: &Arc<Caches>, wake: &mpsc::Sender<Key>) -> JoinSet<()> {
    let mut set = JoinSet::new();
    macro_rules! watch {
        ($($kind:ty),*) => {
            $(set.spawn(follow::<$kind>(client.clone(), Arc::clone(caches), wake.clone()));)*
        };
    }
    watch!(
        RedisCluster,
        RedisOperation,
        RedisBackup,
        StatefulSet,
        Pod,
        Service,
        ConfigMap,
        Secret,
        PersistentVolumeClaim,
        PodDisruptionBudget,
        NetworkPolicy
    );
    set
}

/// A worker's answer: which key, and when to look again.
type Finished = (Key, Next);

/// The loop: wake-ups into the queue, due keys into workers, finished ones back.
/// After `ending` nothing new is begun, and it returns when everything that runs has ended.
async fn work(
    context: &Arc<Context>,
    mut woken: mpsc::Receiver<Key>,
    mut ending: tokio::sync::oneshot::Receiver<()>,
) -> Result<(), Error> {
    let mut is_ending = false;
    let mut queue = Queue::default();
    let mut workers = Workers { set: JoinSet::new(), keys: std::collections::BTreeMap::new() };
    while !(is_ending && workers.set.is_empty()) {
        let may_act = !is_ending && context.kubernetes.leads() && context.kubernetes.caches.complete();
        while may_act && workers.set.len() < AT_ONCE {
            let Some(key) = queue.take(Instant::now()) else { break };
            workers.start(Arc::clone(context), key);
        }
        context.metrics.state(context.kubernetes.leads(), queue.depth().0, context.kubernetes.writes());
        let due = if !may_act || workers.set.len() >= AT_ONCE { None } else { queue.next_due() };
        let sleep = match (may_act, due) {
            (false, _) => IDLE,
            (true, Some(at)) => at.saturating_duration_since(Instant::now()),
            // Nothing is due: only a wake-up, a finished worker or the loss of the lease matters.
            (true, None) => Duration::from_secs(1),
        };
        tokio::select! {
            key = woken.recv() => match key {
                Some(key) => queue.add(key, Instant::now() + SETTLE),
                None => return Err(Error::Watches),
            },
            Some(ended) = workers.set.join_next_with_id(), if !workers.set.is_empty() => {
                let (key, next) = workers.finish(context, ended);
                queue.done(&key, next, Instant::now());
            }
            _ = &mut ending, if !is_ending => is_ending = true,
            () = tokio::time::sleep(sleep) => {}
        }
    }
    Ok(())
}

/// Reconciles that run.
struct Workers {
    set: JoinSet<Finished>,
    /// Whose task a panicked one was.
    keys: std::collections::BTreeMap<Id, Key>,
}

impl Workers {
    fn start(&mut self, context: Arc<Context>, key: Key) {
        let handle = self.set.spawn(one(context, key.clone()));
        self.keys.insert(handle.id(), key);
    }

    fn finish(&mut self, context: &Context, ended: Result<(Id, Finished), JoinError>) -> Finished {
        match ended {
            Ok((id, finished)) => {
                self.keys.remove(&id);
                finished
            }
            Err(error) => {
                context.metrics.panicked();
                let key = self.keys.remove(&error.id());
                let key = key.unwrap_or_else(|| Key { namespace: String::new(), name: String::new() });
                tracing::error!(cluster = %key, %error, "a reconcile ended in a panic; the others go on");
                (key, Next::Failed)
            }
        }
    }
}

/// One reconcile, with its deadline, its log line and its count.
async fn one(context: Arc<Context>, key: Key) -> Finished {
    let begun = Instant::now();
    let outcome = tokio::time::timeout(DEADLINE, reconcile(&context, &key)).await;
    let took = begun.elapsed();
    let (result, next) = match outcome {
        Ok(Ok(next)) => ("ok", next),
        Ok(Err(error)) if error.is_change() => {
            tracing::debug!(cluster = %key, error = %crate::chain(&error), "looked at again");
            ("changed", Next::Failed)
        }
        Ok(Err(error)) => {
            tracing::warn!(cluster = %key, error = %crate::chain(&error), "a reconcile failed");
            ("failed", Next::Failed)
        }
        Err(_) => {
            tracing::warn!(cluster = %key, deadline_seconds = DEADLINE.as_secs(), "a reconcile took too long");
            ("deadline", Next::Failed)
        }
    };
    context.metrics.reconciled(result, took);
    (key, next)
}
