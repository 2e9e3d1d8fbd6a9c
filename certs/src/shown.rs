//! Certificates that clients show, judged when they are used rather than when the connection begins.
//!
//! A server behind several authorities, which change while it runs, asks every client for a certificate and takes any
//! ([`ClientAuth::Offered`](crate::ClientAuth::Offered)): TLS proves that the client has the key. Whether the
//! certificate means anything is [`Anchors`]' word, which can be asked again after the authorities have changed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;

use crate::identity::{Identity, identity_of, not_after};
use crate::tls::{client_verifier, root_store};
use crate::{Error, Result};

/// The chain a client showed. That the client has the key of the first certificate is proven, nothing else is.
#[derive(Clone, PartialEq, Eq)]
pub struct Shown {
    chain: Vec<CertificateDer<'static>>,
    identity: Option<Identity>,
    not_after: Timestamp,
}

impl Shown {
    /// What the client of a connection showed; `None` if nothing, or nothing that is a certificate.
    #[must_use]
    pub fn of(connection: &rustls::ServerConnection) -> Option<Self> {
        let chain: Vec<_> = connection.peer_certificates()?.iter().map(|one| one.clone().into_owned()).collect();
        Self::of_chain(chain)
    }

    /// A chain, the client's own certificate first; `None` if that is none.
    #[must_use]
    pub fn of_chain(chain: Vec<CertificateDer<'static>>) -> Option<Self> {
        let first = chain.first()?;
        let (identity, not_after) = (identity_of(first), not_after(first)?);
        Some(Self { chain, identity, not_after })
    }

    /// Who the certificate claims to be for. Ask [`Anchors::verify`] before believing it.
    #[must_use]
    pub const fn claimed(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// The last second in which the first certificate is valid.
    #[must_use]
    pub const fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// SHA-256 of the first certificate, in hexadecimal: what Kubernetes calls the credential's id.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let first = self.chain.first().map_or(&[][..], |first| first.as_ref());
        digest::digest(&digest::SHA256, first).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("identity", &self.identity).field("not_after", &self.not_after).finish()
    }
}

/// Authorities whose clients are believed.
#[derive(Clone)]
pub struct Anchors {
    verifier: Arc<dyn ClientCertVerifier>,
    /// The certificates, sorted: two bundles are the same if they believe in the same authorities.
    roots: Vec<Vec<u8>>,
}

impl Anchors {
    /// Reads a PEM text with one or more authorities.
    ///
    /// # Errors
    /// When there is none in it, or one that is no certificate.
    pub fn of_pem(pem: &str) -> Result<Self> {
        let store = root_store(pem)?;
        let mut roots: Vec<Vec<u8>> = crate::tls::certificates(pem)?.into_iter().map(|one| one.to_vec()).collect();
        roots.sort();
        roots.dedup();
        Ok(Self { verifier: client_verifier(store)?, roots })
    }

    /// Whom the certificate is for, if it was issued for clients by one of these authorities and is valid at `now`.
    ///
    /// # Errors
    /// When it is not to be believed, or names nobody.
    pub fn verify<'a>(&self, shown: &'a Shown, now: Timestamp) -> Result<&'a Identity> {
        let [first, rest @ ..] = shown.chain.as_slice() else { return Err(Error::BadCertificate("no certificate")) };
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.verifier.verify_client_cert(first, rest, at).map_err(Error::Tls)?;
        shown.identity.as_ref().ok_or(Error::BadCertificate("the subject has not exactly one common name"))
    }

    /// Whether some authority is in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.roots.iter().any(|root| other.roots.contains(root))
    }
}

impl PartialEq for Anchors {
    fn eq(&self, other: &Self) -> bool {
        self.roots == other.roots
    }
}

impl Eq for Anchors {}

impl fmt::Debug for Anchors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Anchors({})", self.roots.len())
    }
}
