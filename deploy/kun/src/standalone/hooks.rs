//! The webhook of standalone: on a port of its own, as a real webhook is.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use certs::{ALPN_H1, ALPN_H2, ClientAuth};
use tokio::net::TcpListener;
use webhook::{Callers, Options};

use super::client;
use super::pki::Pki;
use super::{Running, spawn};

/// How long the webhook may take to know its facts: as long as the API server, whose lists they are, on a machine that is busy with others' starts.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is asked whether it does.
const LOOK: Duration = Duration::from_millis(25);

/// Why the webhook does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its port.
    #[error("opening a port for the webhook")]
    Listen(#[source] std::io::Error),
    /// TLS.
    #[error("preparing the webhook's TLS")]
    Tls(#[from] certs::Error),
    /// Its client of the API.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// It does not become ready.
    #[error("the webhook did not learn its facts within {0:?}")]
    NotReady(Duration),
}

/// How the API server reaches the webhook.
pub(super) struct Registration {
    /// Base of its URLs.
    pub(super) url: String,
    /// Whom its certificate is signed by, PEM.
    pub(super) authority_pem: String,
}

/// Starts the webhook and waits until it can decide.
pub(super) async fn start(data: &Path, api: SocketAddr, pki: &Pki) -> Result<(Running, Registration), Error> {
    let listener = listen(&data.join("webhook-port")).await.map_err(Error::Listen)?;
    let address = listener.local_addr().map_err(Error::Listen)?;
    let options = Options {
        listener,
        tls: pki.webhook_server().server_config(ClientAuth::Requested, &[ALPN_H2, ALPN_H1])?,
        callers: Callers::Named(vec!["kun:apiserver".to_owned()]),
        client: client::client(api, pki.webhook())?,
    };
    let running = spawn("the webhook", |stop| webhook::run(options, stop));
    let own = client::client(address, pki.admin())?;
    let ready = async {
        loop {
            if client::get(&own, "/readyz").await.is_ok() {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.map_err(|_| Error::NotReady(PATIENCE))?;
    Ok((running, Registration { url: format!("https://{address}"), authority_pem: pki.authority_pem().to_owned() }))
}

/// The port it had last time, if it is free: then its registration need not change. Any other port otherwise.
async fn listen(memory: &Path) -> std::io::Result<TcpListener> {
    let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let last = std::fs::read_to_string(memory).ok().and_then(|text| text.trim().parse::<u16>().ok());
    if let Some(port) = last
        && let Ok(listener) = TcpListener::bind(local(port)).await
    {
        return Ok(listener);
    }
    let listener = TcpListener::bind(local(0)).await?;
    std::fs::write(memory, listener.local_addr()?.port().to_string())?;
    Ok(listener)
}
