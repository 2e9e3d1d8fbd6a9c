//! TLS configurations from PEM texts, for those who do not need them to follow changes. See [`crate::Reloading`] otherwise.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::{Error, Issued, Reloading, Result};

/// HTTP/2 in ALPN.
pub const ALPN_H2: &[u8] = b"h2";
/// HTTP/1.1 in ALPN.
pub const ALPN_H1: &[u8] = b"http/1.1";

/// TLS versions of every configuration made here: 1.2 stays for old tools.
pub(crate) const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// What a server asks of its clients. Unless it is [`ClientAuth::Offered`], whatever certificate a client shows must verify; a bad one
/// ends the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// No certificate is asked for.
    Off,
    /// A certificate is asked for; a client without one is let in (and is anonymous).
    Requested,
    /// A certificate is asked for, and any is taken: whether it means anything is judged later, see [`crate::Anchors`].
    Offered,
    /// A client without a certificate is turned away.
    Required,
}

/// The one cryptographic provider of this project.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A server's configuration. `authorities_pem` is who signs clients' certificates; it may be empty under [`ClientAuth::Off`].
pub fn server_config(
    identity: &Issued,
    authorities_pem: &str,
    auth: ClientAuth,
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>> {
    let material = crate::Material { identity: Some(identity.clone()), authorities_pem: authorities_pem.to_owned() };
    Reloading::new(material)?.server_config(auth, alpn)
}

/// A client's configuration: `roots_pem` is whom it believes, `identity` is what it shows when asked.
pub fn client_config(roots_pem: &str, identity: Option<&Issued>, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>> {
    let material = crate::Material { identity: identity.cloned(), authorities_pem: roots_pem.to_owned() };
    Reloading::new(material)?.client_config(alpn)
}

/// Certificate chain and key, checked to belong together.
pub(crate) fn certified_key(identity: &Issued) -> Result<CertifiedKey> {
    let chain = certificates(&identity.certificate_pem)?;
    if chain.is_empty() {
        return Err(Error::BadCertificate("no certificate in the text"));
    }
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(|_| Error::BadKey)?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => Error::KeyMismatch,
        other => Error::Tls(other),
    })
}

pub(crate) fn root_store(authorities_pem: &str) -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities_pem)? {
        roots.add(certificate).map_err(Error::Tls)?;
    }
    if roots.is_empty() { Err(Error::NoAuthorities) } else { Ok(Arc::new(roots)) }
}

/// The certificates of a PEM text.
pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    certificates.map_err(|_| Error::BadCertificate("malformed PEM"))
}

pub(crate) fn client_verifier(roots: Arc<RootCertStore>) -> Result<Arc<dyn ClientCertVerifier>> {
    WebPkiClientVerifier::builder_with_provider(roots, provider()).build().map_err(Error::Verifier)
}

pub(crate) fn server_verifier(roots: Arc<RootCertStore>) -> Result<Arc<WebPkiServerVerifier>> {
    WebPkiServerVerifier::builder_with_provider(roots, provider()).build().map_err(Error::Verifier)
}
