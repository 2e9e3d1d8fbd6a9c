//! The durable store in an etcd, for several processes at once.
//!
//! Keys, values and transactions are Kubernetes' own: `PREFIX/GROUP/RESOURCE/NAMESPACE/NAME`, the encoded object without
//! resourceVersion, compare the modification revision and put or read. etcd's revision is the store's; others may write to
//! the same etcd, so it can move without any of our keys having changed.
//!
//! What was not answered is not guessed: a write that may or may not have been done is [`Error::Unclear`], and etcd that
//! cannot be asked is [`Error::Backend`], never "absent" or an empty list.

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

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use rustls::ClientConfig;
use tokio::task::JoinHandle;

use self::fault::Past;
use self::follow::Signals;
use self::layout::Layout;
use self::message::{RangeRequest, RangeResponse, StatusRequest, StatusResponse, TxnRequest, TxnResponse};
use self::wire::{Effect, Failure, LARGE, Patience, RANGE, STATUS, TXN, WRITE, Wire};
use crate::{Error, Feed, Key, ListOptions, Page, Revision, Store, Stored, Write, Written, check_size};

/// The prefix Kubernetes has by default.
pub const DEFAULT_PREFIX: &str = "/registry";

/// How often the past is compacted, as Kubernetes has it.
pub const COMPACT_EVERY: Duration = Duration::from_secs(300);

/// How long starting waits for an etcd that does not answer yet: it may be starting, too.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// How often starting tries.
const START_PAUSE: Duration = Duration::from_millis(500);

/// How many keys one read of a long list takes.
const CHUNK: usize = 500;

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

/// What every part needs to ask etcd something.
#[derive(Debug, Clone)]
struct Client {
    wire: Wire,
    layout: Layout,
}

impl Etcd {
    /// Connects, and checks that this etcd will do. Waits for one that does not answer yet, within bounds.
    ///
    /// # Errors
    /// When the options make no sense, or the etcd is not there, too old, or refuses.
    pub async fn connect(options: EtcdOptions) -> Result<Etcd, EtcdError> {
        let client = Client::new(&options)?;
        client.check_version(options.start_patience).await?;
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

impl Client {
    fn new(options: &EtcdOptions) -> Result<Client, EtcdError> {
        let layout = Layout::new(&options.prefix).ok_or_else(|| EtcdError::Prefix(options.prefix.clone()))?;
        let members: Vec<Uri> = options.servers.iter().map(|server| member(server)).collect::<Result<_, _>>()?;
        if members.is_empty() {
            return Err(EtcdError::NoServer);
        }
        let encrypted = members.iter().find(|member| member.scheme_str() == Some("https"));
        let tls = match (&options.tls, encrypted) {
            (Some(tls), _) => Arc::clone(tls),
            (None, Some(server)) => return Err(EtcdError::NoAuthority { server: server.to_string() }),
            (None, None) => trusting_nobody()?,
        };
        Ok(Client { wire: Wire::new(members, tls), layout })
    }

    async fn check_version(&self, patience: Duration) -> Result<(), EtcdError> {
        let start = tokio::time::Instant::now();
        loop {
            let asked = self.wire.call::<_, StatusResponse>(STATUS, StatusRequest {}, Effect::Read, wire::SMALL).await;
            let failure: Failure = match asked {
                Ok(status) if version::is_recent_enough(&status.version) => return Ok(()),
                Ok(StatusResponse { version: found }) => {
                    return Err(EtcdError::TooOld { found, needed: version::NEEDED });
                }
                Err(failure) => failure,
            };
            if failure.is_refusal() {
                return Err(EtcdError::Refused { reason: failure.message });
            }
            if start.elapsed() >= patience {
                return Err(EtcdError::Unreachable { waited: patience, reason: failure.message });
            }
            tracing::warn!(reason = failure.message, "etcd does not answer yet");
            tokio::time::sleep(START_PAUSE).await;
        }
    }

    async fn range(&self, question: RangeRequest, patience: Patience) -> Result<RangeResponse, Failure> {
        self.wire.call(RANGE, question, Effect::Read, patience).await
    }

    /// etcd's revision now, confirmed by a majority.
    async fn revision(&self) -> Result<Revision, Error> {
        let doing = "asking for the revision";
        let answer = self.range(marker(0), wire::SMALL).await.map_err(|failure| fault::of_read(doing, failure))?;
        header(doing, &answer)
    }

    /// Checks that what happened after `from` can still be told.
    async fn check_readable(&self, from: Revision) -> Result<(), Error> {
        match self.range(marker(request::wire(from)), wire::SMALL).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.past(from, "opening a watch", failure).await),
        }
    }

    /// The error of a read at `requested`.
    async fn past(&self, requested: Revision, doing: &'static str, failure: Failure) -> Error {
        let Some(past) = fault::past(&failure) else { return fault::of_read(doing, failure) };
        match self.revision().await {
            // etcd does not say how far back it could go; the newest is certainly there.
            Ok(current) => match past {
                Past::Compacted => Error::Expired { requested, oldest: current, current },
                Past::Future => Error::Future { requested, current },
            },
            Err(error) => error,
        }
    }

    fn path(&self, key: &Key) -> Result<Bytes, Error> {
        let reason = || format!("{key} has no place in etcd's layout: its group needs a dot, or a namespace");
        self.layout.path(key).ok_or_else(|| Error::Undecodable { reason: reason() })
    }

    async fn get(&self, key: &Key) -> Result<Option<Stored>, Error> {
        let doing = "reading one key";
        let question = RangeRequest { key: self.path(key)?, ..RangeRequest::default() };
        let answer = self.range(question, wire::SMALL).await.map_err(|failure| fault::of_read(doing, failure))?;
        header(doing, &answer)?;
        Ok(answer.kvs.into_iter().next().map(request::stored))
    }

    /// A list, read in chunks of one revision.
    async fn list(&self, options: ListOptions) -> Result<Page, Error> {
        let (from, range_end) = self.layout.bounds(&options.range);
        let after = options.after.as_ref().map(|key| self.path(key)).transpose()?;
        let mut start = after.map_or(from.clone(), |path| layout::after(&path).max(from));
        let mut left = options.limit.unwrap_or(usize::MAX).max(1);
        let mut page = Page { items: Vec::new(), revision: options.at.unwrap_or_default(), next: None };
        let mut at = options.at;
        while start < range_end {
            let limit = left.min(CHUNK);
            let answer = self.chunk(&start, &range_end, at, limit).await?;
            page.revision = at.unwrap_or(header("reading a list", &answer)?);
            at = Some(page.revision);
            let Some(last) = answer.kvs.last().map(|kv| layout::after(&kv.key)) else { return Ok(page) };
            left -= answer.kvs.len().min(left);
            for kv in answer.kvs {
                page.items.push(self.item(kv)?);
            }
            if !answer.more {
                return Ok(page);
            }
            if left == 0 {
                page.next = page.items.last().map(|(key, _)| key.clone());
                return Ok(page);
            }
            start = last;
        }
        if at.is_none() {
            page.revision = self.revision().await?;
        }
        Ok(page)
    }

    async fn chunk(
        &self,
        start: &Bytes,
        end: &Bytes,
        at: Option<Revision>,
        limit: usize,
    ) -> Result<RangeResponse, Error> {
        let question = RangeRequest {
            key: start.clone(),
            range_end: end.clone(),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            revision: at.map_or(0, request::wire),
        };
        match self.range(question, LARGE).await {
            Ok(answer) => Ok(answer),
            Err(failure) => Err(self.past(at.unwrap_or_default(), "reading a list", failure).await),
        }
    }

    /// An incomplete list is a lie that others act upon: what cannot be read fails it.
    fn item(&self, kv: message::KeyValue) -> Result<(Key, Stored), Error> {
        let key = self.layout.key(&kv.key).ok_or_else(|| Error::Backend {
            doing: "reading a list",
            reason: format!("etcd holds the key {:?}, which no version writes", String::from_utf8_lossy(&kv.key)),
        })?;
        Ok((key, request::stored(kv)))
    }

    async fn write(&self, write: &Write) -> Result<Written, Error> {
        let transaction: TxnRequest = request::transaction(write, &self.path(&write.key)?);
        let answer: Result<TxnResponse, Failure> = self.wire.call(TXN, transaction, Effect::Write, WRITE).await;
        answer.map_err(|failure| fault::of_write(write, failure)).and_then(|answer| request::outcome(write, answer))
    }
}

/// A read of one key that is of no interest: what counts is the revision it is answered at.
fn marker(revision: i64) -> RangeRequest {
    RangeRequest { key: Bytes::from_static(compact::KEY), limit: 1, revision, ..RangeRequest::default() }
}

fn header(doing: &'static str, answer: &RangeResponse) -> Result<Revision, Error> {
    let header = answer.header.as_ref();
    let missing = || Error::Backend { doing, reason: "etcd answered without saying at which revision".to_owned() };
    header.map(|header| request::revision(header.revision)).ok_or_else(missing)
}

fn member(server: &str) -> Result<Uri, EtcdError> {
    let bad = || EtcdError::Server { server: server.to_owned() };
    let uri: Uri = server.parse().map_err(|_| bad())?;
    let fits = matches!(uri.scheme_str(), Some("http" | "https")) && uri.port().is_some() && uri.path() == "/";
    if fits && uri.query().is_none() { Ok(uri) } else { Err(bad()) }
}

/// For members without TLS: a configuration with which no handshake can succeed.
fn trusting_nobody() -> Result<Arc<ClientConfig>, EtcdError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| EtcdError::Refused { reason: error.to_string() })?;
    Ok(Arc::new(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()))
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
