//! The questions asked of etcd, and what its answers mean. Everything here is one call, or a few in a row.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use rustls::ClientConfig;

use super::fault::Past;
use super::layout::Layout;
use super::message::{KeyValue, RangeRequest, RangeResponse, StatusRequest, StatusResponse, TxnRequest, TxnResponse};
use super::wire::{Effect, Failure, LARGE, Patience, RANGE, SMALL, STATUS, TXN, WRITE, Wire};
use super::{EtcdError, EtcdOptions, compact, fault, layout, request, version};
use crate::{Error, Key, ListOptions, Page, Range, Revision, Stored, Write, Written};

/// How often starting tries.
const START_PAUSE: Duration = Duration::from_millis(500);

/// How every value begins that Kubernetes stores in its own encoding. Ours are JSON.
const KUBERNETES_VALUE: &[u8] = b"k8s\0";

/// How many keys one read of a long list takes.
const CHUNK: usize = 500;

/// What every part needs to ask etcd something.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) wire: Wire,
    pub(super) layout: Layout,
}

impl Client {
    pub(super) fn new(options: &EtcdOptions) -> Result<Client, EtcdError> {
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

    pub(super) async fn check_version(&self, patience: Duration) -> Result<(), EtcdError> {
        let start = tokio::time::Instant::now();
        loop {
            let asked = self.wire.call::<_, StatusResponse>(STATUS, StatusRequest {}, Effect::Read, SMALL).await;
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

    /// Checks that the prefix is not that of a kube-apiserver, whose objects we would take for ours and ours it for its own.
    pub(super) async fn check_ours(&self, prefix: &str) -> Result<(), EtcdError> {
        let (key, range_end) = self.layout.bounds(&Range::of("namespaces", None));
        let question = RangeRequest { key, range_end, limit: 1, ..RangeRequest::default() };
        let answer = self.range(question, SMALL).await;
        let answer = answer.map_err(|failure| EtcdError::Refused { reason: failure.message })?;
        let is_foreign = answer.kvs.iter().any(|kv| kv.value.starts_with(KUBERNETES_VALUE));
        if is_foreign { Err(EtcdError::Foreign { prefix: prefix.to_owned() }) } else { Ok(()) }
    }

    pub(super) async fn range(&self, question: RangeRequest, patience: Patience) -> Result<RangeResponse, Failure> {
        self.wire.call(RANGE, question, Effect::Read, patience).await
    }

    /// etcd's revision now, confirmed by a majority.
    pub(super) async fn revision(&self) -> Result<Revision, Error> {
        let doing = "asking for the revision";
        let answer = self.range(marker(0), SMALL).await.map_err(|failure| fault::of_read(doing, failure))?;
        header(doing, &answer)
    }

    /// Checks that what happened after `from` can still be told.
    pub(super) async fn check_readable(&self, from: Revision) -> Result<(), Error> {
        match self.range(marker(request::wire(from)), SMALL).await {
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

    pub(super) async fn get(&self, key: &Key) -> Result<Option<Stored>, Error> {
        let doing = "reading one key";
        let question = RangeRequest { key: self.path(key)?, ..RangeRequest::default() };
        let answer = self.range(question, SMALL).await.map_err(|failure| fault::of_read(doing, failure))?;
        header(doing, &answer)?;
        Ok(answer.kvs.into_iter().next().map(request::stored))
    }

    /// A list, read in chunks of one revision.
    pub(super) async fn list(&self, options: ListOptions) -> Result<Page, Error> {
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
    fn item(&self, kv: KeyValue) -> Result<(Key, Stored), Error> {
        let key = self.layout.key(&kv.key).ok_or_else(|| Error::Backend {
            doing: "reading a list",
            reason: format!("etcd holds the key {:?}, which no version writes", String::from_utf8_lossy(&kv.key)),
        })?;
        Ok((key, request::stored(kv)))
    }

    pub(super) async fn write(&self, write: &Write) -> Result<Written, Error> {
        let transaction: TxnRequest = request::transaction(write, &self.path(&write.key)?);
        let answer: Result<TxnResponse, Failure> = self.wire.call(TXN, transaction, Effect::Write, WRITE).await;
        answer.map_err(|failure| fault::of_write(write, failure)).and_then(|answer| request::outcome(write, answer))
    }
}

/// A read of one key that is of no interest: what counts is the revision it is answered at.
pub(super) fn marker(revision: i64) -> RangeRequest {
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
