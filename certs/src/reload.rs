//! TLS configurations that follow their certificates: new ones take effect at the next handshake, without a restart.
//!
//! A connection keeps what it was made with. Sessions are never resumed: a resumed session would skip the certificate
//! checks, and with them a change of the authorities.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use crate::tls::{VERSIONS, certified_key, client_verifier, provider, root_store, server_verifier};
use crate::{ClientAuth, Error, Issued, Result};

/// What a TLS configuration is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Material {
    /// Our own certificate and key; a server must have one.
    pub identity: Option<Issued>,
    /// Whom we believe: for a server, who signs clients; for a client, who signs servers. PEM, may hold several (an old
    /// and a new one while they change). Empty means nobody, and suits only a server that asks for no certificates.
    pub authorities_pem: String,
}

/// Where [`Material`] lies on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaterialPaths {
    /// Our certificate and key, if there is one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The authorities; absent means none.
    pub authorities: Option<PathBuf>,
}

impl MaterialPaths {
    /// Reads the files. They are small, but this blocks: call it at start, or from [`Reloading::watch_files`].
    pub fn read(&self) -> Result<Material> {
        let read =
            |path: &PathBuf| std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.clone(), source });
        let identity = match &self.identity {
            Some((certificate, key)) => Some(Issued { certificate_pem: read(certificate)?, key_pem: read(key)? }),
            None => None,
        };
        Ok(Material { identity, authorities_pem: self.authorities.as_ref().map(read).transpose()?.unwrap_or_default() })
    }
}

/// Certificates that may be exchanged while in use. Clones share them.
#[derive(Clone)]
pub struct Reloading {
    current: Arc<ArcSwap<Current>>,
}

/// The material, parsed and checked once per change.
struct Current {
    identity: Option<Arc<CertifiedKey>>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    servers: Option<Arc<WebPkiServerVerifier>>,
}

impl Current {
    fn parse(material: &Material) -> Result<Self> {
        let identity = material.identity.as_ref().map(certified_key).transpose()?.map(Arc::new);
        if material.authorities_pem.trim().is_empty() {
            return Ok(Self { identity, clients: None, servers: None });
        }
        let roots = root_store(&material.authorities_pem)?;
        Ok(Self { identity, clients: Some(client_verifier(roots.clone())?), servers: Some(server_verifier(roots)?) })
    }
}

impl Reloading {
    /// Checks and takes the material.
    pub fn new(material: Material) -> Result<Self> {
        Ok(Self { current: Arc::new(ArcSwap::from_pointee(Current::parse(&material)?)) })
    }

    /// Replaces the material for all handshakes to come. Bad material is refused and changes nothing.
    pub fn swap(&self, material: Material) -> Result<()> {
        let next = Current::parse(&material)?;
        let now = self.current.load();
        if now.identity.is_some() && next.identity.is_none() {
            return Err(Error::BadCertificate("the new material has no certificate, the old one had"));
        }
        if now.clients.is_some() && next.clients.is_none() {
            return Err(Error::NoAuthorities);
        }
        self.current.store(Arc::new(next));
        Ok(())
    }

    /// A server's configuration that follows this material.
    pub fn server_config(&self, auth: ClientAuth, alpn: &[&[u8]]) -> Result<Arc<ServerConfig>> {
        let current = self.current.load();
        if current.identity.is_none() {
            return Err(Error::BadCertificate("a server needs a certificate"));
        }
        let builder =
            ServerConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS).map_err(Error::Tls)?;
        let builder = match auth {
            ClientAuth::Off => builder.with_no_client_auth(),
            ClientAuth::Requested | ClientAuth::Required if current.clients.is_none() => {
                return Err(Error::NoAuthorities);
            }
            ClientAuth::Requested | ClientAuth::Offered | ClientAuth::Required => {
                builder.with_client_cert_verifier(Arc::new(Follow { of: self.clone(), auth }))
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.clone()));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }

    /// A client's configuration that follows this material.
    pub fn client_config(&self, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>> {
        if self.current.load().servers.is_none() {
            return Err(Error::NoAuthorities);
        }
        let builder =
            ClientConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS).map_err(Error::Tls)?;
        // "dangerous" is rustls' word for any verifier but its own; this one only chooses which of rustls' to ask.
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Follow { of: self.clone(), auth: ClientAuth::Required }));
        let mut config = builder.with_client_cert_resolver(Arc::new(self.clone()));
        config.resumption = Resumption::disabled();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }

    /// Looks at the files every `interval` and takes what changed. Files that do not parse or do not belong together
    /// (a change caught half-way) leave the old material in use and are tried again. Runs until dropped.
    pub async fn watch_files(&self, paths: MaterialPaths, interval: Duration) {
        self.watch_files_and(paths, interval, |_| {}).await;
    }

    /// The same, and tells of whatever was taken.
    pub async fn watch_files_and(
        &self,
        paths: MaterialPaths,
        interval: Duration,
        mut tell: impl FnMut(&Material) + Send,
    ) {
        let mut taken = paths.read().ok();
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.take_files(&paths, taken.as_ref()) {
                Ok(None) => {}
                Ok(Some(material)) => {
                    tracing::info!("certificates changed on disk and are in use now");
                    tell(&material);
                    taken = Some(material);
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "certificates on disk cannot be used: the old ones stay in use")
                }
            }
        }
    }

    /// Makes the material anew every `interval` and takes it if it differs; for an owner of the authority, whose `make`
    /// is [`crate::Authority::load_or_issue`]. What cannot be made or used leaves the old material in use and is tried
    /// again. Runs until dropped.
    pub async fn renew(&self, interval: Duration, mut make: impl FnMut() -> Result<Material> + Send) {
        let mut taken = None;
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let made = make();
            if taken.is_some() && made.as_ref().ok() == taken.as_ref() {
                continue;
            }
            match made.and_then(|material| self.swap(material.clone()).map(|()| material)) {
                Ok(material) => taken = Some(material),
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "certificates cannot be renewed: the old ones stay in use");
                }
            }
        }
    }

    fn take_files(&self, paths: &MaterialPaths, taken: Option<&Material>) -> Result<Option<Material>> {
        let material = paths.read()?;
        if Some(&material) == taken {
            return Ok(None);
        }
        self.swap(material.clone())?;
        Ok(Some(material))
    }
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

impl fmt::Debug for Reloading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reloading")
    }
}

impl ResolvesServerCert for Reloading {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load().identity.clone()
    }
}

impl ResolvesClientCert for Reloading {
    fn resolve(&self, _root_hint_subjects: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.current.load().identity.clone()
    }

    fn has_certs(&self) -> bool {
        self.current.load().identity.is_some()
    }
}

/// A verifier that asks the verifier of the day.
#[derive(Debug)]
struct Follow {
    of: Reloading,
    /// What is asked of clients; towards servers it means nothing.
    auth: ClientAuth,
}

impl Follow {
    fn clients(&self) -> std::result::Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
        let clients = self.of.current.load().clients.clone();
        clients.ok_or(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn servers(&self) -> std::result::Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        let servers = self.of.current.load().servers.clone();
        servers.ok_or(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }
}

impl ClientCertVerifier for Follow {
    fn client_auth_mandatory(&self) -> bool {
        self.auth == ClientAuth::Required
    }

    /// No hints: they would have to outlive a change, and clients without hints send what they have.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        match self.auth {
            // What it means is judged later, see [`crate::Anchors`].
            ClientAuth::Offered => Ok(ClientCertVerified::assertion()),
            ClientAuth::Off | ClientAuth::Requested | ClientAuth::Required => {
                self.clients()?.verify_client_cert(end_entity, intermediates, now)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for Follow {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        self.servers()?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
