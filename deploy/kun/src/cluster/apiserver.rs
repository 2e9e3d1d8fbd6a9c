//! `kun apiserver`: our API server behind a kube-apiserver, which passes requests on and says who asks.
//!
//! Who may do what, which namespaces there are and which webhooks want to be asked is that server's to say. Until it has
//! said so once, nobody is served.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use apiserver::admit::Chain;
use apiserver::admit::call::Caller;
use apiserver::admit::source::StoreSources;
use apiserver::app::{App, Need};
use apiserver::delegate::access::SubjectAccessReviews;
use apiserver::delegate::quotas::CoreQuotas;
use apiserver::delegate::sources::CoreSources;
use apiserver::delegate::token::TokenReviews;
use apiserver::delegate::trust::FollowTrust;
use apiserver::filter::Edge;
use apiserver::filter::authn::Authenticator;
use apiserver::filter::authn::trust::{AnyName, Trust};
use apiserver::filter::authz::Union;
use apiserver::filter::metrics::Metrics;
use apiserver::registry::{Registry, redis};
use apiserver::serve::{self, Drain, Limits};
use apiserver::storage::Storage;
use apiserver::world::System;
use certs::{ALPN_H1, ALPN_H2, ClientAuth, Material, MaterialPaths, Reloading};
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::client;
use crate::cli::Role;
use crate::cli::audit::Audit;
use crate::cli::store::Kept;
use crate::standalone::keep::{self, Opened};
use crate::standalone::{self, Running, Signals, lock};
use crate::trail;

/// How often the certificate's files are looked at.
const LOOK: Duration = Duration::from_secs(10);
/// How the server stops: endpoints take a moment to be forgotten, and requests in progress to end. All informers of a
/// cluster come through few kube-apiservers: were their watches to end at once, all would list at once.
const DRAIN: Drain =
    Drain { notice: Duration::from_secs(5), spread: Duration::from_secs(10), finish: Duration::from_secs(60) };

/// What to run, already checked.
#[derive(Debug)]
pub struct Options {
    /// Where the audit trail is kept, and objects if the store is the embedded one.
    pub data: PathBuf,
    /// Where objects are kept.
    pub store: Kept,
    /// What is recorded of requests; absent: a line for each change.
    pub audit: Option<Audit>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Certificate and key of the server.
    pub certificate: (PathBuf, PathBuf),
    /// Webhooks, by the names in their URLs, that are shown this certificate as a client's.
    pub identify_to: Vec<String>,
    /// How to reach the kube-apiserver; absent: as a pod does.
    pub kubeconfig: Option<PathBuf>,
    /// Whether any certificate of the proxies' authority will do.
    pub any_name: AnyName,
}

/// Why the API server could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Signals.
    #[error("listening to signals")]
    Signals(#[source] std::io::Error),
    /// The port.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate.
    #[error("preparing the server's TLS")]
    Tls(#[from] certs::Error),
    /// The client of the kube-apiserver.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// A kind's schema.
    #[error("the schema of a kind")]
    Schema(#[from] merge::SchemaError),
    /// Another process uses the directory.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// The store.
    #[error(transparent)]
    Store(#[from] keep::Error),
    /// The audit log.
    #[error(transparent)]
    Trail(#[from] trail::Error),
    /// The caches.
    #[error("filling the caches: {0}")]
    Caches(String),
}

/// Serves until a signal.
pub async fn run(options: Options) -> Result<ExitCode, Error> {
    let mut signals = Signals::listen().map_err(Error::Signals)?;
    let _lock = lock::take(&options.data, &BTreeSet::from([Role::Apiserver]))?;
    let listener =
        TcpListener::bind(options.listen).await.map_err(|source| Error::Listen { address: options.listen, source })?;
    let paths = MaterialPaths { identity: Some(options.certificate.clone()), authorities: None };
    let material = paths.read()?;
    let identity = material.identity.clone();
    let certificates = Reloading::new(material)?;
    let client = client::client(options.kubeconfig.as_deref()).await?;
    let app = App::new(redis::registry()?, Arc::new(System));
    let core = Core::follow(client, options.any_name, app.registry().clone());
    let metrics = Arc::new(Metrics::default());
    app.wait_for(core.needs());
    let edge = core.edge(&app, &metrics);
    let caller = Arc::new(Caller::new(identity, Arc::clone(&metrics)).showing_to(options.identify_to.clone()));
    let trail = trail::start(options.audit.clone(), &edge, &metrics)?;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve::run(
        serve::Options {
            listener,
            tls: certificates.server_config(ClientAuth::Offered, &[ALPN_H2, ALPN_H1])?,
            edge,
            metrics: Arc::clone(&metrics),
            limits: Limits::default(),
            drain: DRAIN,
        },
        stop.clone(),
    ));
    let (storage, parts) = open(&options, &app, &core, Arc::clone(&caller)).await?;
    tracing::info!(address = %options.listen, "serving");
    tokio::select! {
        () = signals.first() => {}
        () = certificates.watch_files_and(paths, LOOK, |material| show(&caller, material)) => {}
    }
    stop.cancel();
    if let Err(error) = serving.await {
        tracing::error!(%error, "the server ended badly");
    }
    standalone::stop(parts).await;
    storage.close().await;
    trail::close(trail).await;
    Ok(ExitCode::SUCCESS)
}

/// What the kube-apiserver says: who asks, what he may do, what admission must know.
struct Core {
    client: Client,
    authenticator: Arc<Authenticator>,
    trust: Arc<FollowTrust>,
    authorizer: Arc<Union>,
    sources: Arc<CoreSources>,
}

impl Core {
    /// Begins to follow, until the process ends.
    fn follow(client: Client, any_name: AnyName, registry: Registry) -> Self {
        let tokens = Arc::new(TokenReviews::new(client.clone()));
        let authenticator = Arc::new(Authenticator::new(Trust::default(), Some(tokens)));
        let trust = FollowTrust::new(client.clone(), Arc::clone(&authenticator), any_name);
        let (sources, follow) = CoreSources::follow(client.clone(), registry);
        tokio::spawn(follow);
        let followed = Arc::clone(&trust);
        tokio::spawn(async move { followed.run().await });
        let authorizer = Arc::new(Union::of(vec![Arc::new(SubjectAccessReviews::new(client.clone()))]));
        Self { client, authenticator, trust, authorizer, sources }
    }

    fn needs(&self) -> Vec<Need> {
        let (trust, sources) = (Arc::clone(&self.trust), Arc::clone(&self.sources));
        vec![
            Need { name: "authentication", check: Box::new(move || trust.check()) },
            Need { name: "admission", check: Box::new(move || sources.check()) },
        ]
    }

    fn edge(&self, app: &Arc<App>, metrics: &Arc<Metrics>) -> Arc<Edge> {
        let (authenticator, authorizer) = (Arc::clone(&self.authenticator), Arc::clone(&self.authorizer));
        Edge::new(app.clone(), authenticator, authorizer, Arc::clone(metrics))
    }
}

/// Webhooks are shown the certificate of the day.
fn show(caller: &Caller, material: &Material) {
    if let Some(identity) = &material.identity {
        caller.renew(identity.clone());
    }
}

async fn open(
    options: &Options,
    app: &Arc<App>,
    core: &Core,
    caller: Arc<Caller>,
) -> Result<(Arc<Storage>, Vec<Running>), Error> {
    let Opened { store, parts } = keep::open(&options.data, &options.store).await?;
    let storage = Storage::open(store, app.registry()).await.map_err(|error| Error::Caches(error.to_string()))?;
    let storage = Arc::new(storage);
    let own = Arc::new(StoreSources::new(Arc::clone(&storage), app.registry().clone()));
    let quotas = Arc::new(CoreQuotas::new(core.client.clone(), own, app.registry().clone()));
    let chain = Chain::new(core.sources.clone(), caller).with_authorizer(core.authorizer.clone()).with_quotas(quotas);
    app.open(Arc::clone(&storage), Arc::new(chain));
    Ok((storage, parts))
}
