//! The API server of standalone: the chosen store, both groups of kinds, static rights, TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use apiserver::admission::Admission;
use apiserver::admit::Chain;
use apiserver::admit::call::Caller;
use apiserver::admit::escalate::Escalation;
use apiserver::app::App;
use apiserver::filter::Edge;
use apiserver::filter::authn::Authenticator;
use apiserver::filter::authz::stored::Stored;
use apiserver::filter::authz::{Authorizer, StaticAuthorizer, Union};
use apiserver::filter::metrics::Metrics;
use apiserver::filter::rights;
use apiserver::registry::{Registry, host, redis};
use apiserver::serve::{self, Drain, Limits};
use apiserver::storage::Storage;
use apiserver::world::System;
use certs::{ALPN_H1, ALPN_H2, Anchors, ClientAuth};
use tokio::net::TcpListener;

use super::keep::{self, Opened};
use super::pki::{self, Pki};
use super::{Options, Running, spawn};
use crate::trail;

/// Requests in progress get this long when we stop; everybody who uses this API is on this machine.
const FINISH: Duration = Duration::from_secs(5);

/// Why the API server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port.
    #[error("cannot listen on {address}; if another program uses it, or a kun that still runs, give another --listen")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// TLS.
    #[error("preparing the API server's TLS")]
    Tls(#[from] certs::Error),
    /// Certificates.
    #[error(transparent)]
    Pki(#[from] pki::Error),
    /// The store.
    #[error(transparent)]
    Store(#[from] keep::Error),
    /// The audit log.
    #[error(transparent)]
    Trail(#[from] trail::Error),
    /// The caches.
    #[error("filling the caches: {0}")]
    Caches(String),
    /// A kind's schema.
    #[error("the schema of a kind")]
    Schema(#[from] merge::SchemaError),
}

/// Starts listening first, so that clients get 503 rather than nothing, and opens when the caches are complete.
pub(super) async fn start(options: &Options, pki: &Pki) -> Result<Vec<Running>, Error> {
    let address = options.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    let metrics = Arc::new(Metrics::default());
    let app = App::new(registry()?, Arc::new(System));
    let stored = Arc::new(Stored::default());
    let authorizer: Arc<dyn Authorizer> = Arc::new(Union::of(vec![
        Arc::new(StaticAuthorizer::new(rights::standalone(app.registry()))),
        Arc::clone(&stored) as Arc<dyn Authorizer>,
    ]));
    let edge = Edge::new(
        app.clone(),
        Authenticator::of_clients(Anchors::of_pem(pki.authority_pem())?),
        Arc::clone(&authorizer),
        Arc::clone(&metrics),
    );
    let trail = trail::start(options.audit.clone(), &edge, &metrics)?;
    let serving = serve::Options {
        listener,
        tls: pki.server().server_config(ClientAuth::Offered, &[ALPN_H2, ALPN_H1])?,
        edge,
        metrics: Arc::clone(&metrics),
        limits: Limits::default(),
        drain: Drain { finish: FINISH, ..Drain::default() },
    };
    let shown = pki.apiserver_issued()?;
    let running = spawn("the API server", |stop| serve::run(serving, stop));
    let Opened { store, parts } = keep::open(&options.data, &options.store).await?;
    let storage = Storage::open(store, app.registry()).await.map_err(|error| Error::Caches(error.to_string()))?;
    let storage = Arc::new(storage);
    let caller = Arc::new(Caller::new(Some(shown.clone()), metrics));
    pki.follow_with(Arc::clone(&caller), shown);
    stored.open(Arc::clone(&storage));
    let chain = Chain::over(Arc::clone(&storage), app.registry().clone(), caller).with_authorizer(authorizer);
    let chain = Arc::new(chain);
    let escalation = Escalation::before(Arc::clone(&chain) as Arc<dyn Admission>, stored);
    app.open(Arc::clone(&storage), Arc::new(escalation));
    let quotas = tokio::spawn(async move { chain.keep_quotas().await });
    let last = async move {
        quotas.abort();
        storage.close().await;
        trail::close(trail).await;
    };
    let running = Running { last: Some(Box::pin(last)), ..running };
    Ok(std::iter::once(running).chain(parts).collect())
}

fn registry() -> Result<Registry, merge::SchemaError> {
    Ok(redis::registry()?.and(host::registry()?))
}
