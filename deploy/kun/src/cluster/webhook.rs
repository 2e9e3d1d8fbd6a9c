//! `kun webhook`: the admission webhook of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use certs::{ALPN_H1, ALPN_H2, ClientAuth, MaterialPaths, Reloading};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use webhook::Callers;

use super::client;
use crate::standalone::Signals;

/// How often the certificate's files are looked at.
const LOOK: Duration = Duration::from_secs(10);

/// What to run, already checked.
#[derive(Debug)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Certificate and key of the server.
    pub certificate: (PathBuf, PathBuf),
    /// Who signs the certificates of those who may ask; absent: whoever reaches the port may ask.
    pub client_ca: Option<PathBuf>,
    /// Common names on the certificates of those who may ask.
    pub callers: Vec<String>,
    /// How to reach the kube-apiserver; absent: as a pod does.
    pub kubeconfig: Option<PathBuf>,
}

/// Why the webhook could not start, or ended.
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
    #[error("preparing the webhook's TLS")]
    Tls(#[from] certs::Error),
    /// The client of the kube-apiserver.
    #[error(transparent)]
    Client(#[from] client::Error),
}

/// Serves until a signal.
pub async fn run(options: Options) -> Result<ExitCode, Error> {
    let mut signals = Signals::listen().map_err(Error::Signals)?;
    let listener =
        TcpListener::bind(options.listen).await.map_err(|source| Error::Listen { address: options.listen, source })?;
    let (auth, callers) = match &options.client_ca {
        Some(_) => (ClientAuth::Requested, Callers::Named(options.callers)),
        None => {
            tracing::warn!("whoever reaches the port may ask what anybody may do: give --client-ca-file");
            (ClientAuth::Off, Callers::Anyone)
        }
    };
    let paths = MaterialPaths { identity: Some(options.certificate), authorities: options.client_ca };
    let certificates = Reloading::new(paths.read()?)?;
    let serving = webhook::Options {
        listener,
        tls: certificates.server_config(auth, &[ALPN_H2, ALPN_H1])?,
        callers,
        client: client::client(options.kubeconfig.as_deref()).await?,
    };
    tracing::info!(address = %options.listen, "serving reviews");
    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(webhook::run(serving, stop.clone()));
    tokio::select! {
        () = signals.first() => {}
        () = certificates.watch_files(paths, LOOK) => {}
        () = &mut serving => return Ok(ExitCode::SUCCESS),
    }
    stop.cancel();
    serving.await;
    Ok(ExitCode::SUCCESS)
}
