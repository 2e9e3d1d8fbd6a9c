//! Who answers at an address, by its agent. I/O.
//!
//! Addresses are given out again, and Redis takes passwords in the clear. So nobody logs in to a Redis elsewhere before the agent of
//! that pod has shown the certificate of this very cluster: no stranger ever sees a password.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use certs::{ALPN_H1, Reloading};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{body::Body, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use types::{
    agent::AgentReport,
    names::{AGENT_SERVER_NAME, PORT_AGENT},
};

/// A report is a few hundred bytes.
const ANSWER_MOST: usize = 64 << 10;

/// Why an agent counts for nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection, or no certificate that can be believed.
    #[error("connect to the agent at {address}: {source}")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
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
    /// HTTP failed.
    #[error("ask the agent at {address}: {why}")]
    Http {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: String,
    },
}

impl Error {
    /// Whether nobody is known to have answered: it may be otherwise a moment later.
    pub(crate) fn is_of_the_wire(&self) -> bool {
        match self {
            // So rustls says that what answers speaks another language, or shows a certificate of another authority.
            Self::Connect { source, .. } => source.kind() != std::io::ErrorKind::InvalidData,
            Self::Stranger { .. } => false,
            Self::Http { .. } => true,
        }
    }
}

/// What an agent of this cluster says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// What it knows.
    Report(Box<AgentReport>),
    /// It is of a release whose agents tell each other nothing. Its certificate counts all the same.
    Silent,
    /// It is of a later release, which says what this one does not understand.
    Strange,
}

/// The agents of one cluster, as one of them reaches the others.
#[derive(Clone)]
pub struct Fellows {
    tls: TlsConnector,
    own: String,
}

impl std::fmt::Debug for Fellows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fellows").field(&self.own).finish()
    }
}

impl Fellows {
    /// Those whose certificates have the name `own`, as this agent's has ([`types::names::agent_user`]).
    ///
    /// # Errors
    /// When nobody could be believed, for want of an authority.
    pub fn new(certificates: &Reloading, own: String) -> certs::Result<Self> {
        Ok(Self { tls: TlsConnector::from(certificates.client_config(&[ALPN_H1])?), own })
    }

    /// Asks the agent at `ip` who it is. It answers while its Redis does not run, too.
    ///
    /// # Errors
    /// When no agent of this cluster answers there. How long that takes is the caller's to bound.
    pub async fn ask(&self, ip: IpAddr) -> Result<Word, Error> {
        let address = SocketAddr::new(ip, PORT_AGENT);
        let http = |why: String| Error::Http { address, why };
        let mut sender = connect(&self.tls, address, &self.own).await?;
        let request = Request::get("/v1/report").header("host", AGENT_SERVER_NAME).body(Empty::<Bytes>::new());
        let request = request.map_err(|error| http(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(|error| http(error.to_string()))?;
        match response.status() {
            StatusCode::OK => {}
            // Releases before this one answer the controller alone.
            StatusCode::FORBIDDEN => return Ok(Word::Silent),
            other => return Err(http(format!("it answered {other}"))),
        }
        let body = Limited::new(response.into_body(), ANSWER_MOST).collect().await;
        let body = body.map_err(|error| http(error.to_string()))?.to_bytes();
        Ok(understand(&body))
    }
}

fn understand(body: &[u8]) -> Word {
    serde_json::from_slice(body).map_or(Word::Strange, |report| Word::Report(Box::new(report)))
}

/// A connection to the agent at `address`, which has proven that it is `whose`. One authority serves all clusters: the name on the
/// certificate tells their agents apart.
///
/// # Errors
/// When it cannot be reached, cannot be believed, or is somebody else.
pub async fn connect<B>(tls: &TlsConnector, address: SocketAddr, whose: &str) -> Result<http1::SendRequest<B>, Error>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let failed = |source| Error::Connect { address, source };
    let name = ServerName::try_from(AGENT_SERVER_NAME).map_err(|error| failed(std::io::Error::other(error)))?;
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    let stream = tls.connect(name, stream).await.map_err(failed)?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let found = certificate.and_then(certs::identity_of).map(|identity| identity.common_name).unwrap_or_default();
    if found != whose {
        return Err(Error::Stranger { address, expected: whose.to_owned(), found });
    }
    let http = |error: hyper::Error| Error::Http { address, why: error.to_string() };
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
    // It ends with the sender.
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use types::agent::AgentPhase;

    use super::*;

    #[test]
    fn an_agent_of_a_later_release_is_there_all_the_same() {
        let report = |phase: &str| {
            let rest = r#""heldBecause":null,"nodeId":null,"holdsData":false,"starts":0,"anything":{}"#;
            format!(r#"{{"pod":"orders-0-0","phase":"{phase}",{rest}}}"#)
        };
        let Word::Report(understood) = understand(report("Running").as_bytes()) else { panic!("not understood") };
        assert_eq!(understood.phase, AgentPhase::Running);
        assert_eq!(understand(report("Dreaming").as_bytes()), Word::Strange);
    }
}
