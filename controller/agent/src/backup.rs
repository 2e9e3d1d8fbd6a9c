//! The worker of one artifact, `kun agent backup`: pulls a member's snapshot, makes it durable, reads it back, reports.
//!
//! It runs in a pod of its own with the target mounted, and does nothing else. The artifact takes its name only when every
//! byte is on disk, and was read back from there and hashed.

mod artifact;

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use certs::{ALPN_H1, MaterialPaths, Reloading};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use types::{agent::WorkerReport, backup::ArtifactStatus, names::AGENT_SERVER_NAME};

use crate::fellows;

pub use artifact::receive;

/// How long connecting and the handshake may take, each time.
const CONNECT: Duration = Duration::from_secs(10);
/// How often it is connected to. An agent on a busy node gives a connection up before it knows who calls, and nothing has been asked then.
const CONNECTS: usize = 5;
/// Between two of them.
const BETWEEN: Duration = Duration::from_secs(1);
/// Between two questions to a member that is giving a copy to another worker: each costs it a handshake.
const BUSY: Duration = Duration::from_secs(2);
/// How long the member may take to begin, and the stream may stand still: a little more than the member's own bounds.
const STILL: Duration = Duration::from_secs(75);
/// Longest file name.
const NAME_MAX: usize = 200;
/// Kubernetes keeps this much of a termination message.
const MESSAGE_MAX: usize = 4096;

/// Why an artifact could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments do not say what to do.
    #[error("read the arguments: {0}")]
    Arguments(String),
    /// The worker's certificate cannot be used.
    #[error("load the worker's certificate: {0}")]
    Certificate(#[from] certs::Error),
    /// The member cannot be reached, or another cluster's agent answers.
    #[error(transparent)]
    Agent(#[from] fellows::Error),
    /// The member does not answer in time.
    #[error("the agent at {0} does not answer")]
    Late(SocketAddr),
    /// Somebody else answers at the address.
    #[error("the agent at {address} is {found:?}, not {expected:?}")]
    Stranger {
        /// Where.
        address: SocketAddr,
        /// Who should be there.
        expected: String,
        /// Who is.
        found: String,
    },
    /// The copy may lack what was acknowledged before it was asked for.
    #[error("the copy of the agent at {address} begins at {found}, and is to begin at {expected} or later")]
    Old {
        /// Where.
        address: SocketAddr,
        /// The stream, and how far it has to be.
        expected: String,
        /// The same of the copy.
        found: String,
    },
    /// The member refuses.
    #[error("the agent refused: {status}: {message}")]
    Refused {
        /// Status.
        status: StatusCode,
        /// Its words.
        message: String,
    },
    /// The stream broke.
    #[error("receive the snapshot: {0}")]
    Stream(String),
    /// The artifact cannot be written.
    #[error("write {path}: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What lies on disk is not what was sent.
    #[error(
        "read back {path}: {bytes} bytes with SHA-256 {sha256}, the member sent {sent_bytes} bytes with {sent_sha256}"
    )]
    Differs {
        /// Which.
        path: PathBuf,
        /// Bytes found.
        bytes: u64,
        /// Hash found.
        sha256: String,
        /// Bytes sent.
        sent_bytes: String,
        /// Hash sent.
        sent_sha256: String,
    },
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The agent to pull from.
    pub source: SocketAddr,
    /// Common name that the agent must have.
    pub expect_cn: String,
    /// Node ID that the member must have, if it matters.
    pub expect_node: Option<String>,
    /// The replication ID that the copy must have, and the least offset, if it may not be older.
    pub not_before: Option<(String, i64)>,
    /// Directory of the artifact; made if absent.
    pub out: PathBuf,
    /// File name of the artifact.
    pub file: String,
    /// Holds `tls.crt`, `tls.key`, `ca.crt`.
    pub internal_dir: PathBuf,
    /// Where the report goes.
    pub termination_log: PathBuf,
}

impl Job {
    /// Reads `--source IP:PORT --expect-cn NAME [--expect-node ID] [--not-before ID:OFFSET] --out DIR --file NAME` and the environment.
    ///
    /// # Errors
    /// Names what is missing, unknown or not legal.
    pub fn from_args(args: &[String], env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let bad = |why: String| Error::Arguments(why);
        let mut found = std::collections::BTreeMap::new();
        let mut words = args.iter();
        while let Some(name) = words.next() {
            let known = ["--source", "--expect-cn", "--expect-node", "--not-before", "--out", "--file"];
            let known = known.contains(&name.as_str());
            let value = words.next().filter(|_| known);
            let value = value.ok_or_else(|| bad(format!("{name:?} is unknown or has no value")))?;
            found.insert(name.as_str(), value.clone());
        }
        let mut need = |name: &str| found.remove(name).ok_or_else(|| bad(format!("{name} is missing")));
        let (source, expect_cn) = (need("--source")?, need("--expect-cn")?);
        let (out, file) = (need("--out")?, need("--file")?);
        if !is_plain_name(&file, NAME_MAX) {
            return Err(bad(format!("--file {file:?} is not a plain file name")));
        }
        let expect_node = need("--expect-node").ok();
        let not_before = need("--not-before").ok().map(|text| {
            let moment = text.rsplit_once(':').and_then(|(id, offset)| Some((id.to_owned(), offset.parse().ok()?)));
            moment.ok_or_else(|| bad(format!("--not-before {text:?} is not a replication ID with an offset")))
        });
        Ok(Self {
            source: source.parse().map_err(|_| bad(format!("--source {source:?} is not an address with a port")))?,
            expect_cn,
            expect_node,
            not_before: not_before.transpose()?,
            out: out.into(),
            file,
            internal_dir: env("KUN_INTERNAL_DIR").ok_or_else(|| bad("KUN_INTERNAL_DIR is not set".to_owned()))?.into(),
            termination_log: termination_log(env),
        })
    }
}

/// A name of a file or folder that stays where it is put.
pub(crate) fn is_plain_name(name: &str, longest: usize) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= longest && !name.starts_with('.') && name.bytes().all(legal)
}

/// Where a worker's report goes.
pub(crate) fn termination_log(env: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    env("KUN_TERMINATION_LOG").unwrap_or_else(|| "/dev/termination-log".to_owned()).into()
}

/// Does the job and leaves its report in the termination message. Returns whether the artifact is stored.
pub async fn run(job: &Job) -> bool {
    let outcome = store(job).await;
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            tracing::error!(%error, "the artifact was not stored");
            WorkerReport::Failed { message: error.to_string() }
        }
    };
    leave(&job.termination_log, &report);
    matches!(report, WorkerReport::Stored { .. })
}

/// Writes the report where Kubernetes (or the node) picks it up.
pub fn leave(termination_log: &Path, report: &WorkerReport) {
    let text = serde_json::to_string(report).unwrap_or_default();
    let written = if text.len() > MESSAGE_MAX {
        let message = "the reason is too long to be reported; it is in the worker's log".to_owned();
        serde_json::to_string(&WorkerReport::Failed { message }).unwrap_or_default()
    } else {
        text
    };
    if let Err(error) = fs::write(termination_log, written) {
        tracing::error!(path = %termination_log.display(), %error, "the report could not be written");
    }
}

async fn store(job: &Job) -> Result<WorkerReport, Error> {
    let Asked { response, has_waited } = request(job).await?;
    let head = response.headers().clone();
    if let Some(expected) = job.expect_node.as_ref().filter(|id| text(&head, "kun-node-id") != id.as_str()) {
        return Err(Error::Stranger {
            address: job.source,
            expected: expected.clone(),
            found: text(&head, "kun-node-id"),
        });
    }
    begins_late_enough(job, &head)?;
    fs::create_dir_all(&job.out).map_err(|source| Error::Write { path: job.out.clone(), source })?;
    // Who was waited for lived until a moment ago, and may be about to give its file a name.
    if !has_waited {
        artifact::sweep(&job.out, &job.file);
    }
    let partial = artifact::fresh(&job.out, &job.file);
    let kept = keep(job, response.into_body(), &partial).await;
    if kept.is_err() {
        let _ = fs::remove_file(&partial);
    }
    report(&head, kept?)
}

/// A replica may have been cut off, or have come to follow another one, since its controller saw it.
fn begins_late_enough(job: &Job, head: &HeaderMap) -> Result<(), Error> {
    let Some((stream, least)) = &job.not_before else { return Ok(()) };
    let (id, offset) = (text(head, "kun-replication-id"), text(head, "kun-offset"));
    if id == *stream && offset.parse::<i64>().is_ok_and(|offset| offset >= *least) {
        return Ok(());
    }
    let (expected, found) = (format!("{stream}:{least}"), format!("{id}:{offset}"));
    Err(Error::Old { address: job.source, expected, found })
}

/// A member that has begun to answer.
struct Asked {
    response: http::Response<Incoming>,
    /// It gave a copy to another worker before.
    has_waited: bool,
}

/// Connects, makes sure who answers, and asks for the snapshot, as often as it may help: who is not believed is not asked again. The worker before
/// this one may live on where nobody hears of it, and be sent the same for hours: it is waited for, as long as Kubernetes lets this one.
async fn request(job: &Job) -> Result<Asked, Error> {
    let dir = &job.internal_dir;
    let paths = MaterialPaths {
        identity: Some((dir.join("tls.crt"), dir.join("tls.key"))),
        authorities: Some(dir.join("ca.crt")),
    };
    let connector = TlsConnector::from(Reloading::new(paths.read()?)?.client_config(&[ALPN_H1])?);
    let (mut tries, mut has_waited) = (1..CONNECTS, false);
    loop {
        match ask(&connector, job).await {
            Err(Error::Agent(error)) if error.is_of_the_wire() && tries.next().is_some() => {
                tracing::warn!(%error, "the agent is connected to again");
                sleep(BETWEEN).await;
            }
            Err(Error::Refused { status, message }) if status == StatusCode::TOO_MANY_REQUESTS => {
                if !has_waited {
                    tracing::warn!(why = %message, "the agent is asked again until it has time");
                }
                (tries, has_waited) = (1..CONNECTS, true);
                sleep(BUSY).await;
            }
            told => return told.map(|response| Asked { response, has_waited }),
        }
    }
}

/// Once. Who is late may believe himself connected to an agent that has given him up: only the head of the answer tells.
async fn ask(connector: &TlsConnector, job: &Job) -> Result<http::Response<Incoming>, Error> {
    let address = job.source;
    let late = |_| fellows::Error::Connect { address, source: io::ErrorKind::TimedOut.into() };
    let connected = timeout(CONNECT, fellows::connect(connector, address, &job.expect_cn));
    let mut sender = connected.await.map_err(late)??;
    let request = Request::get("/v1/snapshot")
        .header("host", AGENT_SERVER_NAME)
        .header("te", "trailers")
        .body(Empty::<Bytes>::new())
        .map_err(|error| Error::Stream(error.to_string()))?;
    let answered = timeout(STILL, sender.send_request(request)).await.map_err(|_| Error::Late(address))?;
    let response = answered.map_err(|error| fellows::Error::Http { address, why: error.to_string() })?;
    if response.status() == StatusCode::OK {
        return Ok(response);
    }
    let status = response.status();
    let body = http_body_util::Limited::new(response.into_body(), MESSAGE_MAX / 2).collect().await;
    let message = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()).unwrap_or_default();
    Err(Error::Refused { status, message })
}

/// An artifact that was read back and has its name.
struct Kept {
    trailers: HeaderMap,
    file: String,
    bytes: u64,
    sha256: String,
}

/// Receives a file, reads it back from the disk, and gives it its name.
async fn keep(job: &Job, body: Incoming, partial: &Path) -> Result<Kept, Error> {
    let trailers = receive(body, partial).await?;
    let (job, partial, sent) = (job.clone(), partial.to_owned(), trailers.clone());
    let work = move || {
        let (bytes, sha256) =
            artifact::read_back(&partial).map_err(|source| Error::Write { path: partial.clone(), source })?;
        if text(&sent, "kun-sha256") != sha256 || text(&sent, "kun-bytes") != bytes.to_string() {
            return Err(Error::Differs {
                path: partial,
                bytes,
                sha256,
                sent_bytes: text(&sent, "kun-bytes"),
                sent_sha256: text(&sent, "kun-sha256"),
            });
        }
        let file = artifact::name(&partial, &job.out, &job.file)
            .map_err(|source| Error::Write { path: job.out.join(&job.file), source })?;
        Ok((file, bytes, sha256))
    };
    let kept = tokio::task::spawn_blocking(work).await;
    let kept = kept.map_err(|error| Error::Stream(format!("the reading thread ended: {error}")))?;
    kept.map(|(file, bytes, sha256)| Kept { trailers, file, bytes, sha256 })
}

fn report(head: &HeaderMap, kept: Kept) -> Result<WorkerReport, Error> {
    let Kept { trailers, file, bytes, sha256 } = kept;
    let illegible = |name: &str| Error::Stream(format!("its header {name} is not legible"));
    fn number<N: std::str::FromStr>(from: &HeaderMap, name: &str) -> Option<N> {
        text(from, name).parse().ok()
    }
    let artifact = ArtifactStatus {
        index: number(head, "kun-shard").ok_or_else(|| illegible("kun-shard"))?,
        slots: text(head, "kun-slots"),
        pod: text(head, "kun-pod"),
        node_id: text(head, "kun-node-id"),
        replication_id: text(head, "kun-replication-id"),
        offset: number(head, "kun-offset").ok_or_else(|| illegible("kun-offset"))?,
        keys: number(&trailers, "kun-keys").ok_or_else(|| illegible("kun-keys"))?,
        walked: text(&trailers, "kun-walked") == "yes",
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        sha256,
        file,
        cut_time: number(head, "kun-cut-time").ok_or_else(|| illegible("kun-cut-time"))?,
    };
    Ok(WorkerReport::Stored { artifact, engine_version: text(head, "kun-engine-version") })
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn read(line: &str) -> Result<Job, String> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Job::from_args(&args, &|name| (name == "KUN_INTERNAL_DIR").then(|| "/i".to_owned())).map_err(|e| e.to_string())
    }

    #[test]
    fn a_job_is_read_and_paths_cannot_leave_the_target() {
        let good = "--source 127.84.0.1:16443 --expect-cn kun:agent:d:c --out /t/x --file 0.rdb";
        assert_eq!(
            read(good),
            Ok(Job {
                source: "127.84.0.1:16443".parse().unwrap(),
                expect_cn: "kun:agent:d:c".into(),
                expect_node: None,
                not_before: None,
                out: "/t/x".into(),
                file: "0.rdb".into(),
                internal_dir: "/i".into(),
                termination_log: "/dev/termination-log".into(),
            })
        );
        for bad in ["../0.rdb", ".0.rdb", "a/b", "a\nb", ""] {
            assert!(read(&good.replace("0.rdb", bad)).unwrap_err().contains("plain file name"), "{bad}");
        }
        assert!(read(&good.replace("--out", "--outt")).is_err());
        assert!(read("--source 127.84.0.1:1").unwrap_err().contains("--expect-cn is missing"));
        assert!(read("--source").is_err());
        let late = |moment: &str| read(&format!("{good} --not-before {moment}")).map(|job| job.not_before);
        assert_eq!(late("abc:70"), Ok(Some(("abc".to_owned(), 70))));
        for bad in ["abc", "abc:", "70"] {
            assert!(late(bad).unwrap_err().contains("is not a replication ID with an offset"), "{bad}");
        }
    }

    #[test]
    fn a_copy_that_is_older_than_it_may_be_or_of_another_stream_is_refused() {
        let good = "--source 127.84.0.1:16443 --expect-cn kun:agent:d:c --out /t/x --file 0.rdb";
        let told = |line: &str, id: &'static str, offset: &'static str| {
            let mut head = HeaderMap::new();
            head.insert("kun-replication-id", http::HeaderValue::from_static(id));
            head.insert("kun-offset", http::HeaderValue::from_static(offset));
            begins_late_enough(&read(line).unwrap(), &head).map_err(|error| error.to_string())
        };
        let late = format!("{good} --not-before abc:70");
        assert_eq!(told(&late, "abc", "70"), Ok(()));
        assert_eq!(told(good, "def", "1"), Ok(()));
        for (id, offset) in [("abc", "69"), ("def", "70"), ("abc", "x")] {
            let text =
                "the copy of the agent at 127.84.0.1:16443 begins at ID:OFFSET, and is to begin at abc:70 or later";
            let text = text.replace("ID:OFFSET", &format!("{id}:{offset}"));
            assert_eq!(told(&late, id, offset), Err(text));
        }
    }
}
