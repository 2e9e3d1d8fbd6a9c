//! What a certificate says: who it is for and how long it lives. Parsing only; whether to believe it is rustls' decision.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::der_parser::{Oid, oid};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{Error, Result};

/// Attribute of a subject that holds a user's id (KEP-4815).
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Who a certificate is for: in Kubernetes, the common name is the user and the organizations are its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The subject's common name.
    pub common_name: String,
    /// The subject's organizations, in the order of the certificate.
    pub organizations: Vec<String>,
    /// The subject's user id, by the OID that Kubernetes gave it; empty if there is none.
    pub uid: String,
}

impl Identity {
    /// Somebody without a user id.
    #[must_use]
    pub fn of(common_name: &str, organizations: &[String]) -> Self {
        Self { common_name: common_name.to_owned(), organizations: organizations.to_vec(), uid: String::new() }
    }
}

/// The client's identity on a connection. `None` when the client showed no certificate, or one without exactly one
/// common name; rustls has verified whatever is shown here before the handshake ended.
#[must_use]
pub fn peer_identity(connection: &rustls::ServerConnection) -> Option<Identity> {
    identity_of(connection.peer_certificates()?.first()?)
}

/// The identity a certificate claims. The caller must have verified the certificate.
///
/// A subject with two common names has no identity: which one counts differs between programs, and that difference
/// is an attack.
#[must_use]
pub fn identity_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let mut names = parsed.subject().iter_common_name();
    let common_name = names.next()?.as_str().ok()?.to_owned();
    if names.next().is_some() || common_name.is_empty() {
        return None;
    }
    let organizations = parsed.subject().iter_organization();
    let organizations =
        organizations.map(|name| name.as_str().map(str::to_owned)).collect::<std::result::Result<_, _>>();
    Some(Identity { common_name, organizations: organizations.ok()?, uid: uid_of(&parsed)? })
}

/// `None` if the subject has several, or one that is no text: then nobody is named.
fn uid_of(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut uids = certificate.subject().iter_by_oid(&UID);
    let Some(uid) = uids.next() else { return Some(String::new()) };
    if uids.next().is_some() {
        return None;
    }
    uid.as_str().ok().map(str::to_owned)
}

/// The last second in which a certificate is valid; `None` if it is none.
pub(crate) fn not_after(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

/// Whether the first certificate of a PEM text has used up two thirds of its life (or all of it).
pub fn renewal_due(certificate_pem: &str, now: &Timestamp) -> Result<bool> {
    let validity = validity(certificate_pem)?;
    let life = validity.not_after.saturating_sub(validity.not_before);
    Ok(now.as_second() >= validity.not_after.saturating_sub(life / 3))
}

/// When a certificate is valid, in seconds since the epoch.
pub(crate) struct Validity {
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
}

pub(crate) fn validity(certificate_pem: &str) -> Result<Validity> {
    let certificate = first_certificate(certificate_pem)?;
    let (_, parsed) =
        X509Certificate::from_der(&certificate).map_err(|_| Error::BadCertificate("not an X.509 certificate"))?;
    let validity = parsed.validity();
    Ok(Validity { not_before: validity.not_before.timestamp(), not_after: validity.not_after.timestamp() })
}

pub(crate) fn first_certificate(certificate_pem: &str) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(certificate_pem.as_bytes())
        .map_err(|_| Error::BadCertificate("no certificate in the text"))
}
