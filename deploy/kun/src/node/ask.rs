//! Carries a probe out: HTTP, HTTPS, TCP or a command. What an answer means is decided in `probe.rs`.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::environment::Command;

/// How much of an unhappy answer is read to be shown.
const ANSWER_MAX: usize = 1024;

/// One question, ready to be asked.
#[derive(Clone, Debug)]
pub enum Question {
    /// HTTP or HTTPS.
    Http {
        /// Whether over TLS.
        tls: bool,
        /// Where.
        address: SocketAddrV4,
        /// Path and query.
        path: String,
        /// Further headers.
        headers: Vec<(String, String)>,
    },
    /// Whether a port accepts.
    Tcp {
        /// Where.
        address: SocketAddrV4,
    },
    /// Whether a command succeeds.
    Exec {
        /// The container's environment with the probe's words.
        command: Box<Command>,
    },
}

/// Turns a probe into a question; the error says what cannot be asked.
pub fn question(
    probe: &core::Probe,
    container: &core::Container,
    address: Ipv4Addr,
    command: &Command,
    translate: impl Fn(&str) -> String,
) -> Result<Question, String> {
    if let Some(get) = &probe.http_get {
        let headers = get.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
        let path = get.path.clone().filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned());
        let address = SocketAddrV4::new(address, port(&get.port, container)?);
        let tls = get.scheme.as_deref() == Some("HTTPS");
        return Ok(Question::Http { tls, address, path, headers });
    }
    if let Some(tcp) = &probe.tcp_socket {
        return Ok(Question::Tcp { address: SocketAddrV4::new(address, port(&tcp.port, container)?) });
    }
    if let Some(exec) = &probe.exec {
        let mut words = exec.command.iter().flatten().map(|word| translate(word));
        let program = words.next().ok_or("the exec probe has no command")?;
        let command = Command { program, args: words.collect(), ..command.clone() };
        return Ok(Question::Exec { command: Box::new(command) });
    }
    Err("the standalone node knows httpGet, tcpSocket and exec probes".to_owned())
}

fn port(port: &IntOrString, container: &core::Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name));
            named.map(|port| port.container_port).or_else(|| name.parse().ok())
        }
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .ok_or_else(|| format!("probe port {port:?} is not a port of the container"))
}

/// Asks questions.
#[derive(Clone)]
pub struct Asker {
    tls: tokio_rustls::TlsConnector,
}

impl Asker {
    /// Ready to ask.
    pub fn new() -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self { tls: tokio_rustls::TlsConnector::from(Arc::new(config)) })
    }

    /// Asks within a time limit; the error is what a person reads in the pod's events.
    pub async fn ask(&self, question: &Question, timeout: Duration) -> Result<(), String> {
        match tokio::time::timeout(timeout, self.answer(question)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", timeout.as_secs())),
        }
    }

    async fn answer(&self, question: &Question) -> Result<(), String> {
        match question {
            Question::Tcp { address } => connect(*address).await.map(drop),
            Question::Exec { command } => exec(command).await,
            Question::Http { tls: false, address, path, headers } => {
                get(connect(*address).await?, *address, path, headers).await
            }
            Question::Http { tls: true, address, path, headers } => {
                let name = ServerName::from(std::net::IpAddr::V4(*address.ip()));
                let stream = self.tls.connect(name, connect(*address).await?).await;
                get(stream.map_err(|error| format!("TLS with {address}: {error}"))?, *address, path, headers).await
            }
        }
    }
}

async fn connect(address: SocketAddrV4) -> Result<TcpStream, String> {
    TcpStream::connect(address).await.map_err(|error| format!("connecting to {address}: {error}"))
}

async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    address: SocketAddrV4,
    path: &str,
    headers: &[(String, String)],
) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what} https?://{address}{path}: {error}");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed("GET", &e))?;
    // Ends with the sender, at the latest with the probe's time limit.
    let connection = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(connection));
    let mut request = http::Request::get(path).header("host", address.to_string()).header("user-agent", "kun-probe");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| failed("GET", &e))?;
    let response = sender.send_request(request).await.map_err(|e| failed("GET", &e))?;
    let status = response.status();
    if status.is_success() || status.is_redirection() {
        drop(connection);
        return Ok(());
    }
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()).unwrap_or_default();
    Err(format!("{path} answered {}: {text}", status.as_u16()))
}

async fn exec(command: &Command) -> Result<(), String> {
    let child = tokio::process::Command::new(&command.program)
        .args(&command.args)
        .env_clear()
        .envs(&command.env)
        .current_dir(&command.work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status();
    match child.await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the probe's command ended with {status}")),
        Err(error) => Err(format!("running the probe's command: {error}")),
    }
}

/// Accepts any certificate, as the kubelet does for HTTPS probes: the question is whether the pod answers, not who it is.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
