//! The store of a server: opens the one that was chosen, and runs what it needs besides.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use certs::{ALPN_H2, MaterialPaths, Reloading};
use rustls::ClientConfig;
use store::{DEFAULT_PREFIX, Embedded, EmbeddedOptions, Etcd, EtcdOptions, Revision, Store, backup};

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
        Choice::Embedded => (embedded(data, SystemTime::now()).await?, DEFAULT_PREFIX),
        Choice::Etcd { options, tls } => (etcd(options, tls.as_ref()).await?, options.prefix.as_str()),
    };
    Ok(match keys {
        None => opened,
        Some((file, keyring)) => keys::seal(opened, file, keyring, prefix),
    })
}

/// Where the revisions of a store that is opened now go on at least. A file that is new, or was put back from a copy of
/// its volume, does not know how far its predecessor was; who watched that one must not wait for revisions to come, nor
/// meet one again with other content. So each start takes the clock, if the file is not further: watches that were
/// interrupted by it are told to list again.
pub(crate) fn beginning(now: SystemTime) -> Revision {
    // A clock before 1970 shows nothing; the file's own revision is there.
    now.duration_since(UNIX_EPOCH).map_or(Revision::FIRST, backup::at_time)
}

async fn embedded(data: &Path, now: SystemTime) -> Result<Opened, Error> {
    let file = data.join(FILE);
    let options = EmbeddedOptions { minimum_revision: beginning(now), ..EmbeddedOptions::default() };
    // Opening checks a file that was not closed, which takes time and a thread.
    let opened = tokio::task::spawn_blocking(move || Embedded::open(&file, options)).await;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use store::{Key, Write};

    use super::*;

    fn later(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_790_000_000 + seconds)
    }

    /// The revision of a write by a server that is started `now`, and stopped again.
    fn revision_after(data: &Path, now: SystemTime, name: &str) -> Revision {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let Opened { store, parts } = runtime.block_on(embedded(data, now)).unwrap();
        let key = Key::new("pods", Some("a"), name).unwrap();
        let written = runtime.block_on(store.write(Write::create(key, "{}".into()))).unwrap().revision;
        parts.into_iter().for_each(|part| part.end(&runtime));
        runtime.block_on(store.close());
        written
    }

    #[test]
    fn revisions_go_on_where_the_clock_is_also_in_a_store_that_was_wiped_or_is_an_older_copy() {
        let folder = tempfile::tempdir().unwrap();
        let (data, copy) = (folder.path(), folder.path().join("copy"));
        assert_eq!(revision_after(data, later(0), "a"), beginning(later(0)).next());
        std::fs::copy(data.join(FILE), &copy).unwrap();
        assert_eq!(revision_after(data, later(9), "b"), beginning(later(9)).next());
        std::fs::copy(&copy, data.join(FILE)).unwrap();
        assert_eq!(revision_after(data, later(10), "b"), beginning(later(10)).next());
        std::fs::remove_file(data.join(FILE)).unwrap();
        assert_eq!(revision_after(data, later(11), "a"), beginning(later(11)).next());
    }

    #[test]
    fn a_clock_that_went_back_takes_no_revision_back() {
        let folder = tempfile::tempdir().unwrap();
        let first = revision_after(folder.path(), later(5), "a");
        assert_eq!(revision_after(folder.path(), later(0), "b"), first.next());
        assert_eq!(revision_after(folder.path(), UNIX_EPOCH - Duration::from_secs(1), "c"), first.next().next());
    }
}
