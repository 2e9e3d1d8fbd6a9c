//! A bare HTTP/2 client over TLS: as little as possible of our own time in the figures.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Who calls whom.
#[derive(Clone)]
pub(crate) struct Target {
    /// Address of the server.
    pub address: SocketAddr,
    /// Name on its certificate.
    pub name: String,
    /// CA, client certificate and key, PEM.
    pub ca: String,
    /// Client certificate, PEM.
    pub certificate: String,
    /// Its key, PEM.
    pub key: String,
}

/// One HTTP/2 connection; clones share it.
pub(crate) type Connection = SendRequest<Full<Bytes>>;

/// One HTTP/1.1 connection.
pub(crate) type ConnectionH1 = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

/// Opens one HTTP/2 connection.
pub(crate) async fn connect(target: &Target) -> Result<Connection> {
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .handshake(TokioIo::new(secure(target, b"h2").await?))
        .await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Opens one HTTP/1.1 connection.
pub(crate) async fn connect_h1(target: &Target) -> Result<ConnectionH1> {
    let stream = TokioIo::new(secure(target, b"http/1.1").await?);
    let (sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn secure(target: &Target, protocol: &[u8]) -> Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(target.ca.as_bytes()) {
        roots.add(certificate?)?;
    }
    let chain = CertificateDer::pem_slice_iter(target.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(target.key.as_bytes())?;
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(target.address).await.context("connect")?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(target.name.clone())?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.context("TLS handshake")
}

/// One request; returns the body of a 2xx answer.
pub(crate) async fn call(
    connection: &mut Connection,
    method: &str,
    path: &str,
    kind: &str,
    body: Bytes,
) -> Result<Bytes> {
    let request = Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
        .header("content-type", kind)
        .header("accept", "application/json")
        .header("user-agent", "bench")
        .body(Full::new(body))?;
    connection.ready().await?;
    let answer = connection.send_request(request).await?;
    let status = answer.status();
    let bytes = answer.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "{method} {path}: {status}: {}", String::from_utf8_lossy(&bytes));
    Ok(bytes)
}

/// What a closed loop of `in_flight` callers measured.
pub(crate) struct Rate {
    /// Calls per second.
    pub per_second: f64,
    /// Latencies in milliseconds.
    pub millis: Vec<f64>,
}
