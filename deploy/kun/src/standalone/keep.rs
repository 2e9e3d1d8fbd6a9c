//! The store of a server: opens the one that was chosen, and runs what it needs besides.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use certs::{ALPN_H2, MaterialPaths, Reloading};
use rustls::ClientConfig;
use store::{DEFAULT_PREFIX, Embedded, EmbeddedOptions, Etcd, EtcdOptions, Store};

use super::{Running, hatch, spawn};
use crate::cli::store::{Choice, Kept};

mod keys;

/// Name of the embedded store's file in the data directory.
pub(crate) const FILE: &str = "store.redb";
/// How often etcd's certificates on disk are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file.
    #[error("opening the store")]
    File(#[from] store::OpenError),
    /// The thread that opens the file.
    #[error("opening the store")]
    Opening(#[source] tokio::task::JoinError),
    /// The way out for backups.
    #[error("preparing the socket for backups")]
    Hatch(#[source] std::io::Error),
    /// The etcd.
    #[error("opening the store")]
    Etcd(#[from] store::EtcdError),
    /// The keys of what is kept.
    #[error("reading how objects are encrypted")]
    Encryption(#[from] apiserver::configuration::Error),
    /// The certificates towards etcd.
    #[error("preparing TLS towards etcd")]
    Tls(#[from] certs::Error),
}

/// An open store, and the parts that run for it.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) parts: Vec<Running>,
}

/// Opens what was chosen.
pub(crate) async fn open(data: &Path, kept: &Kept) -> Result<Opened, Error> {
    // Read first: who asked for encryption never gets a store without it.
    let keys = kept.encryption.as_deref().map(keys::File::read).transpose()?;
    let (opened, prefix) = match &kept.choice {
        Choice::Embedded => (embedded(data).await?, DEFAULT_PREFIX),
        Choice::Etcd { options, tls } => (etcd(options, tls.as_ref()).await?, options.prefix.as_str()),
    };
    Ok(match keys {
        None => opened,
        Some((file, keyring)) => keys::seal(opened, file, keyring, prefix),
    })
}

async fn embedded(data: &Path) -> Result<Opened, Error> {
    let file = data.join(FILE);
    // Opening checks a file that was not closed, which takes time and a thread.
    let opened = tokio::task::spawn_blocking(move || Embedded::open(&file, EmbeddedOptions::default())).await;
    let store = Arc::new(opened.map_err(Error::Opening)??);
    let hatch = hatch::open(data, Arc::clone(&store)).map_err(Error::Hatch)?;
    Ok(Opened { store, parts: vec![hatch] })
}

async fn etcd(options: &EtcdOptions, tls: Option<&MaterialPaths>) -> Result<Opened, Error> {
    let (tls, following) = tls.map(follow).transpose()?.unzip();
    let store = Arc::new(Etcd::connect(EtcdOptions { tls, ..options.clone() }).await?);
    tracing::info!(servers = options.servers.join(","), prefix = options.prefix, "objects are kept in etcd");
    Ok(Opened { store, parts: following.into_iter().collect() })
}

/// A configuration that follows the files.
fn follow(paths: &MaterialPaths) -> Result<(Arc<ClientConfig>, Running), Error> {
    let paths = paths.clone();
    let reloading = Reloading::new(paths.read()?)?;
    let config = reloading.client_config(&[ALPN_H2])?;
    let following = spawn("the renewal of etcd's certificates", |stop| async move {
        tokio::select! {
            () = reloading.watch_files(paths, LOOK_EVERY) => {}
            () = stop.cancelled() => {}
        }
    });
    Ok((config, following))
}
