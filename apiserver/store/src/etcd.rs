//! The durable store in an etcd, for several processes at once.
//!
//! Keys, values and transactions are Kubernetes' own: `PREFIX/GROUP/RESOURCE/NAMESPACE/NAME`, the encoded object without
//! resourceVersion, compare the modification revision and put or read. etcd's revision is the store's; others may write to
//! the same etcd, so it can move without any of our keys having changed.
//!
//! What was not answered is not guessed: a write that may or may not have been done is [`Error::Unclear`], and etcd that
//! cannot be asked is [`Error::Backend`], never "absent" or an empty list.

mod client;
mod compact;
mod fault;
mod follow;
mod layout;
mod message;
mod reader;
mod request;
mod version;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rustls::ClientConfig;
use tokio::task::JoinHandle;

use self::client::Client;
use self::follow::Signals;
use crate::{Error, Feed, Key, ListOptions, Page, Revision, Store, Stored, Write, Written, check_size};

/// The prefix Kubernetes has by default.
pub const DEFAULT_PREFIX: &str = "/registry";

/// How often the past is compacted, as Kubernetes has it.
pub const COMPACT_EVERY: Duration = Duration::from_secs(300);

/// How long starting waits for an etcd that does not answer yet: it may be starting, too.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// Which etcd, and how it is used.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// Its members, such as `https://10.0.0.1:2379`. The first that answers is asked.
    pub servers: Vec<String>,
    /// Whom to trust and which certificate to show. Offer the protocol h2. Needed for `https`.
    pub tls: Option<Arc<ClientConfig>>,
    /// The folder all keys are in.
    pub prefix: String,
    /// The past is compacted once per interval, by one of all processes; none leaves that to others.
    pub compact_every: Option<Duration>,
    /// How long to wait at the start for an etcd that does not answer.
    pub start_patience: Duration,
}

impl EtcdOptions {
    /// These members without TLS, everything else as Kubernetes has it.
    #[must_use]
    pub fn new(servers: Vec<String>) -> EtcdOptions {
        EtcdOptions {
            servers,
            tls: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            compact_every: Some(COMPACT_EVERY),
            start_patience: START_PATIENCE,
        }
    }
}

/// Why an etcd is not used.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No member was named.
    #[error("connecting to etcd: no server is named")]
    NoServer,
    /// The address of a member makes no sense.
    #[error("connecting to etcd: {server:?} is not http://HOST:PORT or https://HOST:PORT")]
    Server {
        /// What was given.
        server: String,
    },
    /// A member wants TLS and nobody said whom to trust.
    #[error("connecting to etcd: {server} needs a certificate authority to trust")]
    NoAuthority {
        /// The member.
        server: String,
    },
    /// The prefix is no folder.
    #[error("connecting to etcd: the prefix {0:?} is not a path of at least one part")]
    Prefix(String),
    /// It cannot do what is needed.
    #[error(
        "connecting to etcd: its version is {found}, and {needed} is the oldest that tells a watch correctly how far it is"
    )]
    TooOld {
        /// What it says.
        found: String,
        /// What would do.
        needed: &'static str,
    },
    /// Another server's objects are there.
    #[error(
        "connecting to etcd: below {prefix} a kube-apiserver keeps its objects; an etcd can be shared, a prefix cannot"
    )]
    Foreign {
        /// The folder.
        prefix: String,
    },
    /// It does not answer.
    #[error("connecting to etcd: no answer for {} s: {reason}", .waited.as_secs())]
    Unreachable {
        /// How long it was waited for.
        waited: Duration,
        /// The last failure.
        reason: String,
    },
    /// It answers and does not let us.
    #[error("connecting to etcd: it refuses: {reason}")]
    Refused {
        /// What it says.
        reason: String,
    },
}

/// The durable store in an etcd.
#[derive(Debug)]
pub struct Etcd {
    client: Client,
    signals: Arc<Signals>,
    /// Held by each write that is under way, so that closing can wait for them.
    writes: tokio::sync::RwLock<()>,
    compactor: Option<JoinHandle<()>>,
}

impl Etcd {
    /// Connects, and checks that this etcd will do. Waits for one that does not answer yet, within bounds.
    ///
    /// # Errors
    /// When the options make no sense, or the etcd is not there, too old, or refuses.
    pub async fn connect(options: EtcdOptions) -> Result<Etcd, EtcdError> {
        let client = Client::new(&options)?;
        client.check_version(options.start_patience).await?;
        client.check_ours(&options.prefix).await?;
        let compactor = options.compact_every.map(|every| tokio::spawn(compact::run(client.wire.clone(), every)));
        Ok(Etcd { client, signals: Arc::default(), writes: tokio::sync::RwLock::default(), compactor })
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.signals.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.signals.close();
        if let Some(compactor) = &self.compactor {
            compactor.abort();
        }
    }
}

impl Store for Etcd {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        async move {
            self.check_open()?;
            self.client.get(key).await
        }
        .boxed()
    }

    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<Page, Error>> {
        async move {
            self.check_open()?;
            self.client.list(options).await
        }
        .boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, Error>> {
        async move {
            check_size(&write)?;
            let _under_way = self.writes.read().await;
            self.check_open()?;
            let written = self.client.write(&write).await?;
            self.signals.acknowledge(written.revision);
            Ok(written)
        }
        .boxed()
    }

    fn watch(&self, from: Revision) -> BoxFuture<'_, Result<Feed, Error>> {
        async move {
            self.check_open()?;
            follow::feed(self.client.clone(), Arc::clone(&self.signals), from).await
        }
        .boxed()
    }

    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        async move {
            self.check_open()?;
            self.client.revision().await
        }
        .boxed()
    }

    fn expect(&self, revision: Revision) {
        self.signals.expect(revision);
    }

    fn health(&self) -> Result<(), String> {
        self.signals.health()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            let under_way = self.writes.write().await;
            self.signals.close();
            drop(under_way);
            if let Some(compactor) = &self.compactor {
                compactor.abort();
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
