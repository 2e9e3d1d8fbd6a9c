//! The secrets of one cluster: kept when they exist, made when they do not.
//!
//! Deciding is pure; randomness and certificates come from an [`Issuer`]. A password, once written, is never replaced
//! here: pods and clients use it. The agent's certificate is renewed after two thirds of its life, and when another authority
//! signs; agents take new ones without a restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use certs::Ring;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use tokio::sync::watch;
use types::names;

/// Random bytes of a password: 192 bits, 32 characters in base64.
const PASSWORD_BYTES: usize = 24;
/// Life of an agent's certificate. Renewed after two thirds, so a controller may be away for a month.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);

/// Keys of the internal Secret.
pub mod key {
    /// Password of `kun-operator`.
    pub const OPERATOR: &str = "operator";
    /// Password of `kun-agent`.
    pub const AGENT: &str = "agent";
    /// Password of `kun-replica`.
    pub const REPLICA: &str = "replica";
    /// Certificate of the agents' authority.
    pub const CA: &str = "ca.crt";
    /// Certificate of this cluster's agents.
    pub const CERTIFICATE: &str = "tls.crt";
    /// Its private key.
    pub const PRIVATE_KEY: &str = "tls.key";
    /// Key of the application's password in the auth Secret.
    pub const PASSWORD: &str = "password";
}

/// Why credentials could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system has no randomness.
    #[error("drawing a random password")]
    Random,
    /// No certificate could be issued.
    #[error("issuing the certificate of the agents of {cluster}")]
    Issue {
        /// Namespace and name.
        cluster: String,
        /// Why.
        #[source]
        source: certs::Error,
    },
}

/// The secrets of one cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Content of the internal Secret.
    pub internal: BTreeMap<String, String>,
    /// The generated application password; absent when the user brings a Secret.
    pub application: Option<String>,
}

impl Credentials {
    /// The controller's own password.
    #[must_use]
    pub fn operator(&self) -> &str {
        self.internal.get(key::OPERATOR).map_or("", String::as_str)
    }
}

/// Secrets are never printed.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// Where new secrets come from.
pub trait Issuer: Send + Sync {
    /// A fresh password.
    ///
    /// # Errors
    /// When there is no randomness.
    fn password(&self) -> Result<String, Error>;
    /// A certificate with its key for the agents of one cluster: the one that is kept, if it is still good.
    ///
    /// # Errors
    /// When the authority cannot sign.
    fn agent_certificate(
        &self,
        namespace: &str,
        cluster: &str,
        kept: Option<certs::Issued>,
        now: Timestamp,
    ) -> Result<certs::Issued, Error>;
    /// Certificates of the authorities to believe.
    fn authorities(&self) -> String;
}

/// The issuer in service: the system's randomness and the agents' authority of the day.
pub struct SystemIssuer {
    ring: watch::Receiver<Arc<Ring>>,
    random: SystemRandom,
}

impl SystemIssuer {
    /// An issuer that follows `ring`.
    #[must_use]
    pub fn new(ring: watch::Receiver<Arc<Ring>>) -> Self {
        Self { ring, random: SystemRandom::new() }
    }
}

impl std::fmt::Debug for SystemIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SystemIssuer")
    }
}

impl Issuer for SystemIssuer {
    fn password(&self) -> Result<String, Error> {
        let mut bytes = [0_u8; PASSWORD_BYTES];
        self.random.fill(&mut bytes).map_err(|_| Error::Random)?;
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    fn agent_certificate(
        &self,
        namespace: &str,
        cluster: &str,
        kept: Option<certs::Issued>,
        now: Timestamp,
    ) -> Result<certs::Issued, Error> {
        let leaf = certs::Leaf {
            common_name: names::agent_user(namespace, cluster),
            organizations: Vec::new(),
            dns_names: vec![names::AGENT_SERVER_NAME.to_owned()],
            ips: Vec::new(),
            usage: certs::Usage::BOTH,
            lifetime: CERTIFICATE_LIFE,
        };
        let issued = self.ring.borrow().keep_or_issue_at(kept, &leaf, now);
        issued.map_err(|source| Error::Issue { cluster: format!("{namespace}/{cluster}"), source })
    }

    fn authorities(&self) -> String {
        self.ring.borrow().bundle_pem()
    }
}

/// Which cluster, and what it has.
#[derive(Clone, Copy, Debug)]
pub struct Existing<'a> {
    /// Namespace of the cluster.
    pub namespace: &'a str,
    /// Name of the cluster.
    pub cluster: &'a str,
    /// The internal Secret, if there is one.
    pub internal: Option<&'a Secret>,
    /// The generated auth Secret, if there is one.
    pub application: Option<&'a Secret>,
    /// Whether an application password is generated at all.
    pub generate_application: bool,
}

/// Keeps what exists, makes what is missing, renews what runs out.
///
/// # Errors
/// When something new is needed and the issuer fails.
pub fn keep_or_make(existing: Existing<'_>, issuer: &dyn Issuer, now: Timestamp) -> Result<Credentials, Error> {
    let mut internal = BTreeMap::new();
    for name in [key::OPERATOR, key::AGENT, key::REPLICA] {
        let kept = existing.internal.and_then(|secret| value(secret, name));
        internal.insert(name.to_owned(), kept.map_or_else(|| issuer.password(), Ok)?);
    }
    let kept = existing.internal.and_then(kept_certificate);
    let issued = issuer.agent_certificate(existing.namespace, existing.cluster, kept, now)?;
    internal.insert(key::CA.to_owned(), issuer.authorities());
    internal.insert(key::CERTIFICATE.to_owned(), issued.certificate_pem);
    internal.insert(key::PRIVATE_KEY.to_owned(), issued.key_pem);
    let application = if existing.generate_application {
        let kept = existing.application.and_then(|secret| value(secret, key::PASSWORD));
        Some(kept.map_or_else(|| issuer.password(), Ok)?)
    } else {
        None
    };
    Ok(Credentials { internal, application })
}

/// The certificate in the Secret, good or not.
fn kept_certificate(secret: &Secret) -> Option<certs::Issued> {
    let (certificate_pem, key_pem) = (value(secret, key::CERTIFICATE)?, value(secret, key::PRIVATE_KEY)?);
    Some(certs::Issued { certificate_pem, key_pem })
}

/// A value of a Secret that is text and not empty.
fn value(secret: &Secret, name: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(name)?;
    let text = String::from_utf8(bytes.0.clone()).ok()?;
    (!text.is_empty()).then_some(text)
}

/// An issuer whose secrets are known, for golden tests.
#[cfg(test)]
pub(crate) mod fixed {
    use super::{Error, Issuer, Timestamp};

    /// Counts nothing, draws nothing.
    pub(crate) struct Fixed;

    impl Issuer for Fixed {
        fn password(&self) -> Result<String, Error> {
            Ok("s3cret".to_owned())
        }
        fn agent_certificate(
            &self,
            namespace: &str,
            cluster: &str,
            _: Option<certs::Issued>,
            _: Timestamp,
        ) -> Result<certs::Issued, Error> {
            let certificate_pem = format!("certificate of {namespace}/{cluster}");
            Ok(certs::Issued { certificate_pem, key_pem: "private key".to_owned() })
        }
        fn authorities(&self) -> String {
            "authority".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::ByteString;

    use super::*;

    fn secret(data: &BTreeMap<String, String>) -> Secret {
        let data = data.iter().map(|(k, v)| (k.clone(), ByteString(v.clone().into_bytes()))).collect();
        Secret { data: Some(data), ..Secret::default() }
    }

    #[test]
    fn what_exists_is_kept_and_a_certificate_is_renewed_before_it_ends() {
        let now = Timestamp::now();
        let (turn, ring) = watch::channel(Arc::new(Ring::create_at("agents", now).unwrap()));
        let issuer = SystemIssuer::new(ring);
        let none = Existing {
            namespace: "ns",
            cluster: "orders",
            internal: None,
            application: None,
            generate_application: true,
        };
        let made = keep_or_make(none, &issuer, now).unwrap();
        assert_eq!(made.application.as_ref().map(String::len), Some(32));
        let internal = secret(&made.internal);
        let application = secret(&[(key::PASSWORD.to_owned(), made.application.clone().unwrap())].into());
        let some = Existing { internal: Some(&internal), application: Some(&application), ..none };
        assert_eq!(keep_or_make(some, &issuer, now).unwrap(), made);

        let later = now + jiff::SignedDuration::from_secs(70 * 24 * 3600);
        let renewed = keep_or_make(some, &issuer, later).unwrap();
        assert_eq!(renewed.operator(), made.operator());
        assert_ne!(renewed.internal.get(key::CERTIFICATE), made.internal.get(key::CERTIFICATE));

        // Another authority is announced: it is believed, and nothing is issued anew. Then it signs.
        let mut rings = [certs::Turn::Announce, certs::Turn::Promote].into_iter();
        let mut next = |ring: &Ring| {
            let again = Ring::decode(&ring.encode()).unwrap().unwrap();
            turn.send_replace(Arc::new(again.turn(rings.next().unwrap(), now).unwrap()));
        };
        let before = Arc::clone(&turn.borrow());
        next(&before);
        let announced = keep_or_make(some, &issuer, now).unwrap();
        assert_eq!(announced.internal.get(key::CERTIFICATE), made.internal.get(key::CERTIFICATE));
        assert_ne!(announced.internal.get(key::CA), made.internal.get(key::CA));
        let before = Arc::clone(&turn.borrow());
        next(&before);
        let promoted = keep_or_make(some, &issuer, now).unwrap();
        assert_ne!(promoted.internal.get(key::CERTIFICATE), made.internal.get(key::CERTIFICATE));
        assert_eq!(promoted.operator(), made.operator());
    }

    #[test]
    fn a_user_who_brings_a_secret_gets_none_generated() {
        let existing = Existing {
            namespace: "ns",
            cluster: "orders",
            internal: None,
            application: None,
            generate_application: false,
        };
        let made = keep_or_make(existing, &fixed::Fixed, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(made.application, None);
        assert_eq!(format!("{made:?}"), "Credentials");
    }
}
