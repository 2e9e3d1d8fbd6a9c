//! One snapshot of the own Redis as a stream: the agent attaches like a replica, takes the copy and leaves.
//!
//! No file and no second save: Redis' child writes straight into the socket (performance.md §5.4). What passes is hashed,
//! walked and checksummed; memory stays bounded by the channel, and a reader that is too slow slows Redis' child down, not
//! Redis. Compression is off for the time of the copy. The setting is put back when the stream ends in any way; if the
//! agent itself dies, the next agent starts redis-server anew from its rendered configuration, which is the crash-safe
//! record of the wanted value (performance.md T4).

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue},
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use jiff::Timestamp;
use resp::{Command, Info, Node, Vendor, nodes::slots_text};
use tokio::{io::AsyncReadExt, net::TcpStream, sync::mpsc, time::timeout};

use crate::{digest::Sha256, rdb, shared::Shared};

/// Bytes handed on at a time.
const CHUNK: usize = 256 << 10;
/// Chunks between Redis and the reader: 4 MiB at most, well under the 32 MiB an agent may take.
const CHUNKS: usize = 16;
/// How long Redis may take to begin; it forks first.
const BEGIN: Duration = Duration::from_secs(60);
/// How long the stream may stand still, in either direction.
const STILL: Duration = Duration::from_secs(60);
/// Length of the mark that ends a stream of unknown size.
const MARK: usize = 40;
/// Longest line of the replication handshake.
const LINE_MAX: usize = 256;

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another one is being taken.
    #[error("another snapshot is being streamed from this member")]
    Busy,
    /// Redis does not answer, or refuses.
    #[error("take a snapshot: {0}")]
    Redis(#[from] resp::Error),
    /// The member is in no state to give one.
    #[error("take a snapshot: {0}")]
    Unfit(String),
    /// The replication stream broke.
    #[error("take a snapshot: read the replication stream: {0}")]
    Stream(std::io::Error),
    /// The stream stood still.
    #[error("take a snapshot: nothing moved for {} s", STILL.as_secs())]
    Still,
    /// The reader went away.
    #[error("take a snapshot: the reader went away")]
    Gone,
    /// The stream is no RDB file.
    #[error("take a snapshot: {0}")]
    Rdb(#[from] rdb::Error),
}

/// Where a copy begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    replication_id: String,
    offset: i64,
    at: Timestamp,
}

/// How a copy ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Framing {
    /// After this many bytes.
    Length(u64),
    /// After this mark.
    Mark([u8; MARK]),
}

/// Starts a snapshot and answers with its stream.
///
/// # Errors
/// When it cannot begin.
pub async fn stream(shared: &Arc<Shared>) -> Result<Response, Error> {
    let permit = Arc::clone(&shared.snapshots).try_acquire_owned().map_err(|_| Error::Busy)?;
    let facts = facts(shared).await?;
    let (chunks, receiver) = mpsc::channel(CHUNKS);
    let (began, begin) = tokio::sync::oneshot::channel();
    let task = Arc::clone(shared);
    let reads = facts.reads().map(str::to_owned);
    // A changed setting has to be put back whatever becomes of the request, so it is changed in a task of its own, which
    // always gets to its end.
    tokio::spawn(async move {
        match Uncompressed::set(&task).await {
            Err(error) => {
                let _ = began.send(Err(error));
            }
            Ok(compression) => {
                run(&task, reads.as_deref(), began, &chunks).await;
                compression.restore().await;
            }
        }
        drop(permit);
    });
    let cut = begin.await.map_err(|_| Error::Gone)??;
    Ok(respond(shared, &facts, &cut, receiver))
}

async fn run(
    shared: &Arc<Shared>,
    reads: Option<&str>,
    began: tokio::sync::oneshot::Sender<Result<Cut, Error>>,
    chunks: &mpsc::Sender<Result<Frame<Bytes>, Error>>,
) {
    let attached = match timeout(BEGIN, attach(shared, reads)).await {
        Ok(attached) => attached,
        Err(_) => Err(Error::Still),
    };
    match attached {
        Err(error) => {
            let _ = began.send(Err(error));
        }
        Ok((cut, framing, source)) => {
            if began.send(Ok(cut)).is_err() {
                return;
            }
            if let Err(error) = copy(source, framing, chunks).await {
                tracing::warn!(%error, "a snapshot ended early");
                // The reader must see a broken stream, not a short one.
                // One that hangs and takes nothing sees it when it goes on.
                let _ = timeout(STILL, chunks.send(Err(error))).await;
            }
        }
    }
}

/// Facts about the member that go along with the copy.
struct Facts {
    node_id: String,
    slots: String,
    vendor: Vendor,
    version: String,
}

impl Facts {
    /// What a reader tells Valkey, or it is sent the oldest format there is, which cannot hold every value.
    fn reads(&self) -> Option<&str> {
        (self.vendor == Vendor::Valkey).then_some(self.version.as_str())
    }
}

async fn facts(shared: &Arc<Shared>) -> Result<Facts, Error> {
    let mut connection = shared.local.open(Duration::from_secs(5)).await?;
    let info = connection.info(&["server", "replication", "persistence"]).await?;
    check(&info)?;
    let table = match connection.cluster_nodes().await {
        Ok(table) => table,
        // Not in cluster mode.
        Err(error) if error.refusal().is_some() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    // Who hears too few of the others may have been replaced, and what it holds may be of before that.
    if !table.is_empty() && !connection.cluster_info().await?.ok {
        return Err(Error::Unfit("the member does not serve (cluster_state:fail)".to_owned()));
    }
    let me = table.iter().find(|node| node.flags.myself);
    Ok(Facts {
        node_id: me.map(|node| node.id.to_string()).unwrap_or_default(),
        slots: me.map(|me| slots_text(shard_slots(me, &table))).unwrap_or_default(),
        vendor: info.vendor(),
        version: info.version().unwrap_or_default().to_owned(),
    })
}

/// The slots of the member's shard: its own, or its primary's.
fn shard_slots<'a>(me: &'a Node, table: &'a [Node]) -> &'a [resp::SlotRange] {
    let owner = me.primary.as_ref().and_then(|primary| table.iter().find(|node| node.id == *primary)).unwrap_or(me);
    &owner.slots
}

fn check(info: &Info) -> Result<(), Error> {
    if info.flag("loading") != Some(false) {
        return Err(Error::Unfit("the data set is being loaded".to_owned()));
    }
    if info.get("role") == Some("slave") && info.get("master_link_status") != Some("up") {
        return Err(Error::Unfit("the link to the primary is down, the copy would be old".to_owned()));
    }
    Ok(())
}

/// The setting to put back.
struct Uncompressed {
    shared: Arc<Shared>,
    was: String,
}

impl Uncompressed {
    async fn set(shared: &Arc<Shared>) -> Result<Self, Error> {
        let mut connection = shared.local.open(Duration::from_secs(5)).await?;
        let was = connection.config_get(&["rdbcompression"]).await?.remove("rdbcompression").unwrap_or_default();
        connection.config_set("rdbcompression", "no").await?;
        Ok(Self { shared: Arc::clone(shared), was })
    }

    async fn restore(self) {
        // The user's present wish wins over what was found: it may have changed while the stream ran.
        let wish = self.shared.inputs().config.parameters.get("rdbcompression").cloned();
        let value = wish.unwrap_or(self.was);
        let command = Command::new("CONFIG").arg("SET").arg("rdbcompression").arg(value);
        if let Err(error) = self.shared.local.ask(&[command]).await {
            tracing::warn!(%error, "rdbcompression could not be set back");
        }
    }
}

/// Bytes of the replication stream.
struct Source {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Source {
    async fn read_some(&mut self) -> Result<(), Error> {
        self.buffer.reserve(CHUNK);
        match timeout(STILL, self.stream.read_buf(&mut self.buffer)).await {
            Err(_) => Err(Error::Still),
            Ok(Err(error)) => Err(Error::Stream(error)),
            Ok(Ok(0)) => Err(Error::Stream(std::io::ErrorKind::UnexpectedEof.into())),
            Ok(Ok(_)) => Ok(()),
        }
    }

    /// The next line; empty ones are Redis' way of saying that it is still there.
    async fn line(&mut self) -> Result<String, Error> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end.saturating_add(1));
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                if !text.is_empty() {
                    return Ok(text);
                }
            } else if self.buffer.len() > LINE_MAX {
                return Err(Error::Unfit("the replication handshake is not legible".to_owned()));
            } else {
                self.read_some().await?;
            }
        }
    }
}

/// Attaches as a reader that wants one copy and nothing after it.
async fn attach(shared: &Arc<Shared>, reads: Option<&str>) -> Result<(Cut, Framing, Source), Error> {
    let mut connection = shared.local.open(Duration::from_secs(10)).await?;
    // `rdb-only`: Redis neither keeps a stream for us nor counts us among its replicas for WAIT.
    connection.call(&["REPLCONF", "rdb-only", "1"]).await?;
    connection.call(&["REPLCONF", "capa", "eof", "capa", "psync2"]).await?;
    if let Some(version) = reads {
        connection.call(&["REPLCONF", "version", version]).await?;
    }
    let (stream, buffer) = connection.into_parts();
    let mut source = Source { stream, buffer };
    let mut wire = Vec::new();
    Command::new("PSYNC").arg("?").arg("-1").encode(&mut wire);
    tokio::io::AsyncWriteExt::write_all(&mut source.stream, &wire).await.map_err(Error::Stream)?;
    let answer = source.line().await?;
    let cut =
        read_cut(&answer, Timestamp::now()).ok_or_else(|| Error::Unfit(format!("PSYNC was answered {answer:?}")))?;
    let head = source.line().await?;
    let framing = read_framing(&head).ok_or_else(|| Error::Unfit(format!("the copy was announced as {head:?}")))?;
    Ok((cut, framing, source))
}

fn read_cut(line: &str, at: Timestamp) -> Option<Cut> {
    let mut words = line.strip_prefix("+FULLRESYNC ")?.split(' ');
    let (replication_id, offset) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    Some(Cut { replication_id, offset, at })
}

fn read_framing(line: &str) -> Option<Framing> {
    let size = line.strip_prefix('$')?;
    match size.strip_prefix("EOF:") {
        Some(mark) => Some(Framing::Mark(mark.as_bytes().try_into().ok()?)),
        None => size.parse().ok().map(Framing::Length),
    }
}

async fn copy(
    mut source: Source,
    framing: Framing,
    chunks: &mpsc::Sender<Result<Frame<Bytes>, Error>>,
) -> Result<(), Error> {
    let mut reader = rdb::Reader::default();
    let mut sum = Sha256::default();
    let mut left = framing;
    loop {
        let (piece, done) = cut_piece(&mut source.buffer, &mut left);
        if !piece.is_empty() {
            reader.feed(&piece)?;
            sum.update(&piece);
            let sent = timeout(STILL, chunks.send(Ok(Frame::data(piece)))).await;
            sent.map_err(|_| Error::Still)?.map_err(|_| Error::Gone)?;
        }
        if done {
            break;
        }
        source.read_some().await?;
    }
    let summary = reader.finish()?;
    let trailers = Frame::trailers(headers(&[
        ("kun-bytes", &summary.bytes.to_string()),
        ("kun-sha256", &sum.hex()),
        ("kun-keys", &summary.keys.to_string()),
        ("kun-walked", if summary.walked { "yes" } else { "no" }),
    ]));
    timeout(STILL, chunks.send(Ok(trailers))).await.map_err(|_| Error::Still)?.map_err(|_| Error::Gone)
}

/// Takes what surely belongs to the copy from the buffer; `true`: it is complete. Pure.
///
/// A mark can only end what has arrived: Redis sends nothing after it before it is answered. So up to 40 bytes are held
/// back, and compared whenever more have come.
fn cut_piece(buffer: &mut BytesMut, framing: &mut Framing) -> (Bytes, bool) {
    match framing {
        Framing::Length(left) => {
            let size = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
            *left = left.saturating_sub(size as u64);
            (buffer.split_to(size).freeze(), *left == 0)
        }
        Framing::Mark(mark) => {
            let keep = buffer.len().min(MARK);
            let piece = buffer.split_to(buffer.len().saturating_sub(keep)).freeze();
            let done = buffer.as_ref() == mark.as_slice();
            (piece, done)
        }
    }
}

fn respond(
    shared: &Arc<Shared>,
    facts: &Facts,
    cut: &Cut,
    receiver: mpsc::Receiver<Result<Frame<Bytes>, Error>>,
) -> Response {
    let frames = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    let mut response = Body::new(StreamBody::new(Box::pin(frames))).into_response();
    response.headers_mut().extend(headers(&[
        ("content-type", "application/octet-stream"),
        ("trailer", "kun-bytes, kun-sha256, kun-keys, kun-walked"),
        ("kun-pod", &shared.options.pod_name),
        ("kun-shard", &shared.options.shard),
        ("kun-node-id", &facts.node_id),
        ("kun-replication-id", &cut.replication_id),
        ("kun-offset", &cut.offset.to_string()),
        ("kun-slots", &facts.slots),
        ("kun-engine-version", &facts.version),
        ("kun-cut-time", &cut.at.to_string()),
    ]));
    response
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?))
    };
    pairs.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_announcements_are_read() {
        let mark = [b'a'; MARK];
        assert_eq!(read_framing(&format!("$EOF:{}", "a".repeat(40))), Some(Framing::Mark(mark)));
        assert_eq!(read_framing("$EOF:short"), None);
        assert_eq!(read_framing("$123"), Some(Framing::Length(123)));
        assert_eq!(read_framing("-ERR"), None);
        let at = Timestamp::from_second(1).unwrap();
        assert_eq!(read_cut("+FULLRESYNC abc 17", at), Some(Cut { replication_id: "abc".into(), offset: 17, at }));
        assert_eq!(read_cut("+CONTINUE", at), None);
    }

    proptest! {
        #[test]
        fn the_copy_is_exact_however_it_arrives(
            body in prop::collection::vec(0u8..3, 0..200), cut in 1usize..60, by_mark in any::<bool>()
        ) {
            let mark = [2u8; MARK];
            let mut framing = if by_mark { Framing::Mark(mark) } else { Framing::Length(body.len() as u64) };
            let wire = if by_mark { [body.clone(), mark.to_vec()].concat() } else { body.clone() };
            // A body that ends like the mark is cut short by any reader; Redis draws marks at random.
            prop_assume!(!by_mark || !body.ends_with(&[2]));
            let mut buffer = BytesMut::new();
            let mut got = Vec::new();
            let mut ended = false;
            for piece in wire.chunks(cut) {
                buffer.extend_from_slice(piece);
                let (bytes, done) = cut_piece(&mut buffer, &mut framing);
                got.extend_from_slice(&bytes);
                ended = done;
            }
            if wire.is_empty() {
                ended = cut_piece(&mut buffer, &mut framing).1;
            }
            prop_assert!(ended);
            prop_assert_eq!(got, body);
        }
    }
}
