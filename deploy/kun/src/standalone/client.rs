//! A client of the API that follows its certificate: renewed ones take effect with the next connection.

use std::net::SocketAddr;
use std::time::Duration;

use certs::{ALPN_H1, Reloading};
use http::Uri;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::client::{Body, Client, ConfigExt as _};
use tower::ServiceBuilder;

/// Longest time to connect: the server is on this machine.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept. Connections must end now and then for a renewed certificate to be shown; the
/// server closes those whose certificate has expired.
const IDLE: Duration = Duration::from_secs(90);

/// Pause between two looks while waiting.
const LOOK: Duration = Duration::from_millis(25);

/// Why there is no client, or no answer to it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// TLS.
    #[error("preparing TLS towards {address}")]
    Tls {
        /// Whom.
        address: SocketAddr,
        /// Why.
        source: certs::Error,
    },
    /// The address.
    #[error("{0} makes no URL")]
    Url(SocketAddr),
    /// Nobody answers.
    #[error(
        "the API server was not ready within {patience:?} (last: {last}); is a kun with the role apiserver running on this --data and --listen?"
    )]
    Unreachable {
        /// How long it was tried.
        patience: Duration,
        /// The last answer.
        last: String,
    },
    /// The controller does not lead.
    #[error("the controller did not get its lease within {patience:?}; it is held by {holder:?}")]
    DoesNotLead {
        /// How long it was tried.
        patience: Duration,
        /// Who holds it.
        holder: String,
    },
}

/// Makes a client of the server at `address`.
pub fn client(address: SocketAddr, certificates: Reloading) -> Result<Client, Error> {
    let tls = certificates.client_config(&[ALPN_H1]).map_err(|source| Error::Tls { address, source })?;
    let url: Uri = format!("https://{address}").parse().map_err(|_| Error::Url(address))?;
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT));
    let https = hyper_rustls::HttpsConnector::from((http, tls));
    let pool: Pool<_, Body> =
        Pool::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(https);
    let service = ServiceBuilder::new().layer(kube::Config::new(url).base_uri_layer()).service(pool);
    Ok(Client::new(service, "default"))
}

/// Waits until the API server says that it is ready.
pub(super) async fn reachable(client: &Client, patience: Duration) -> Result<(), Error> {
    let mut last = String::new();
    let ready = async {
        loop {
            match get(client, "/readyz").await {
                Ok(_) => return,
                Err(error) => last = crate::log::chain(&error),
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(patience, ready).await.is_ok() {
        return Ok(());
    }
    Err(Error::Unreachable { patience, last })
}

/// Asks for a text.
pub(super) async fn get(client: &Client, path: &str) -> Result<String, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await
}

/// Waits until `identity` has written itself into the controller's lease after `since`: an old entry of our own, from
/// before we were killed, says nothing.
pub(super) async fn leads(client: &Client, identity: &str, since: Timestamp, patience: Duration) -> Result<(), Error> {
    let name = controller::lease::Name::of_controller(super::NAMESPACE);
    let leases: Api<Lease> = Api::namespaced(client.clone(), &name.namespace);
    let mut holder = String::new();
    let led = async {
        loop {
            let spec = leases.get_opt(&name.name).await.ok().flatten().and_then(|lease| lease.spec);
            if let Some(spec) = spec {
                holder = spec.holder_identity.unwrap_or_default();
                if holder == identity && spec.renew_time.is_some_and(|time| time.0 >= since) {
                    return;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(patience, led).await.is_ok() {
        return Ok(());
    }
    Err(Error::DoesNotLead { patience, holder })
}
