//! The agents' HTTPS side: their report, and the controller's word to a held member.
//!
//! An agent is dialled by address and must present a certificate of the agents' authority for
//! [`AGENT_SERVER_NAME`](types::names::AGENT_SERVER_NAME); we present one of the same authority.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use certs::Ring;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use types::agent::{AgentReport, Release};
use types::names;

/// A report is a few hundred bytes.
const ANSWER_MOST: usize = 64 << 10;
/// How long one exchange may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// Life of our own certificate towards the agents.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// When a new one is issued: far before the old one ends, and cheap.
const CERTIFICATE_RENEWAL: Duration = Duration::from_secs(24 * 3600);

/// Why an agent could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Our own certificate could not be issued.
    #[error("issuing the controller's certificate for the agents")]
    Certificate(#[source] certs::Error),
    /// No connection.
    #[error("connecting to the agent at {address}")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The agent of another cluster has that address by now.
    #[error("the agent at {address} is {found:?}, not {expected:?}")]
    Stranger {
        /// Where.
        address: SocketAddr,
        /// Whose agent should be there.
        expected: String,
        /// Whose is.
        found: String,
    },
    /// HTTP failed.
    #[error("asking the agent at {address}")]
    Http {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: hyper::Error,
    },
    /// The answer is too long, or broke off.
    #[error("reading the answer of the agent at {address}: {why}")]
    Body {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: String,
    },
    /// The agent refused.
    #[error("the agent at {address} answered {status}: {text}")]
    Refused {
        /// Where.
        address: SocketAddr,
        /// Its status.
        status: StatusCode,
        /// Its words.
        text: String,
    },
    /// The answer is not what an agent says.
    #[error("reading the report of the agent at {address}")]
    Report {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// No answer in time.
    #[error("the agent at {address} did not answer within {DEADLINE:?}")]
    Deadline {
        /// Where.
        address: SocketAddr,
    },
    /// The request or the server's name is malformed: a fault of this program.
    #[error("building a request to the agent at {address}")]
    Request {
        /// Where.
        address: SocketAddr,
    },
}

/// Reaches agents.
pub struct Agents {
    ring: watch::Receiver<Arc<Ring>>,
    made: Mutex<Option<Made>>,
}

/// How agents are reached, of which ring, since when.
struct Made {
    config: Arc<rustls::ClientConfig>,
    ring: Arc<Ring>,
    since: Instant,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Agents")
    }
}

impl Agents {
    /// With certificates of the authority of the day, on both sides.
    #[must_use]
    pub fn new(ring: watch::Receiver<Arc<Ring>>) -> Self {
        Self { ring, made: Mutex::new(None) }
    }

    /// `GET /v1/report`, of the agent whose certificate has the name `whose` ([`names::agent_user`]).
    ///
    /// # Errors
    /// When the agent does not answer, or another one does.
    pub async fn report(&self, ip: IpAddr, whose: &str) -> Result<AgentReport, Error> {
        let address = SocketAddr::new(ip, names::PORT_AGENT);
        let body = self.exchange((address, whose), "GET", "/v1/report", Bytes::new()).await?;
        serde_json::from_slice(&body).map_err(|source| Error::Report { address, source })
    }

    /// `POST /v1/release`.
    ///
    /// # Errors
    /// When the agent does not answer, is not held, or is another one.
    pub async fn release(&self, ip: IpAddr, whose: &str, release: Release) -> Result<(), Error> {
        let address = SocketAddr::new(ip, names::PORT_AGENT);
        let body = serde_json::to_vec(&release).map_err(|source| Error::Report { address, source })?;
        self.exchange((address, whose), "POST", "/v1/release", Bytes::from(body)).await.map(|_| ())
    }

    async fn exchange(
        &self,
        agent: (SocketAddr, &str),
        method: &'static str,
        path: &'static str,
        body: Bytes,
    ) -> Result<Bytes, Error> {
        let config = self.config()?;
        let exchange = exchange(config, agent, method, path, body);
        tokio::time::timeout(DEADLINE, exchange).await.map_err(|_| Error::Deadline { address: agent.0 })?
    }

    /// The TLS configuration, with a certificate that is renewed every day and when the ring turns.
    fn config(&self) -> Result<Arc<rustls::ClientConfig>, Error> {
        let ring = Arc::clone(&self.ring.borrow());
        let mut held = self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(made) = held.as_ref()
            && made.since.elapsed() < CERTIFICATE_RENEWAL
            && Arc::ptr_eq(&made.ring, &ring)
        {
            return Ok(Arc::clone(&made.config));
        }
        let leaf = certs::Leaf::client(names::CONTROLLER_USER, &[], CERTIFICATE_LIFE);
        let issued = ring.signer().issue(&leaf).map_err(Error::Certificate)?;
        let config = certs::client_config(&ring.bundle_pem(), Some(&issued), &[certs::ALPN_H1]);
        let config = config.map_err(Error::Certificate)?;
        *held = Some(Made { config: Arc::clone(&config), ring, since: Instant::now() });
        Ok(config)
    }
}

async fn exchange(
    config: Arc<rustls::ClientConfig>,
    (address, whose): (SocketAddr, &str),
    method: &'static str,
    path: &'static str,
    body: Bytes,
) -> Result<Bytes, Error> {
    let name = ServerName::try_from(names::AGENT_SERVER_NAME).map_err(|_| Error::Request { address })?;
    let connect = |source| Error::Connect { address, source };
    let stream = TcpStream::connect(address).await.map_err(connect)?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(connect)?;
    // One authority serves all clusters: the name on the certificate tells their agents apart, whoever has the address by now.
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let found = certificate.and_then(certs::identity_of).map(|identity| identity.common_name).unwrap_or_default();
    if found != whose {
        return Err(Error::Stranger { address, expected: whose.to_owned(), found });
    }
    let http = |source| Error::Http { address, source };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", names::AGENT_SERVER_NAME)
        .header("content-type", "application/json")
        .body(Full::new(body))
        .map_err(|_| Error::Request { address })?;
    // The connection is driven beside the exchange and ends with it, whichever way that ends.
    let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender.send_request(request).await.map_err(http)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_MOST).collect().await;
    let body = body.map_err(|error| Error::Body { address, why: error.to_string() })?.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body).chars().take(300).collect();
    Err(Error::Refused { address, status, text })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn the_agent_of_another_cluster_is_not_believed() {
        let authority = certs::Authority::create("agents").unwrap();
        let leaf = certs::Leaf {
            common_name: names::agent_user("shop", "other"),
            organizations: vec![],
            dns_names: vec![names::AGENT_SERVER_NAME.to_owned()],
            ips: vec![],
            usage: certs::Usage::BOTH,
            lifetime: Duration::from_secs(3600),
        };
        let (issued, roots) = (authority.issue(&leaf).unwrap(), authority.certificate_pem().to_owned());
        let tls = certs::server_config(&issued, &roots, certs::ClientAuth::Requested, &[certs::ALPN_H1]).unwrap();
        let address = SocketAddr::from(([127, 86, 1, 1], names::PORT_AGENT));
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        tokio::spawn(async move {
            let acceptor = tokio_rustls::TlsAcceptor::from(tls);
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                drop(acceptor.accept(stream).await);
            }
        });
        let agents = Agents::new(watch::channel(Arc::new(Ring::of(authority))).1);
        let (whose, begin) = (names::agent_user("shop", "orders"), Instant::now());
        let (expected, found) = loop {
            match agents.report(address.ip(), &whose).await.unwrap_err() {
                Error::Stranger { expected, found, .. } => break (expected, found),
                // The machine stood still for longer than an agent is waited for.
                late => assert!(matches!(late, Error::Deadline { .. }) && begin.elapsed() < hung::process(), "{late}"),
            }
        };
        assert_eq!((expected, found), (whose, names::agent_user("shop", "other")));
    }
}
