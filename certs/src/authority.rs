//! The certificate authority: made once, kept in two files, issues leaves.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::files::{read_optional, write_private};
use crate::identity::{first_certificate, renewal_due, validity};
use crate::{Error, Result};

/// Life of an authority. Long, because everybody who trusts it holds a copy; its certificate is renewed over the same key.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How far certificates are dated back, so that a peer whose clock runs behind accepts a fresh one.
const BACKDATE: Duration = Duration::from_secs(10 * 60);
/// 16 bytes of randomness: more than the 64 bits the CA/Browser rules ask for, less than the 20 bytes RFC 5280 allows.
const SERIAL_BYTES: usize = 16;
/// Object identifier of the organization attribute (X.520).
const OID_ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// A certificate authority: its certificate and its private key.
pub struct Authority {
    certificate_pem: String,
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

/// What a leaf certificate is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// May authenticate a server.
    pub server: bool,
    /// May authenticate a client.
    pub client: bool,
}

impl Usage {
    /// A server's certificate.
    pub const SERVER: Self = Self { server: true, client: false };
    /// A client's certificate.
    pub const CLIENT: Self = Self { server: false, client: true };
    /// Both.
    pub const BOTH: Self = Self { server: true, client: true };
}

/// A certificate to issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Common name: the user, for a client.
    pub common_name: String,
    /// Organizations: the groups, for a client. Two at most.
    pub organizations: Vec<String>,
    /// DNS names of a server.
    pub dns_names: Vec<String>,
    /// Addresses of a server.
    pub ips: Vec<IpAddr>,
    /// What it is good for.
    pub usage: Usage,
    /// How long it lives; cut at the authority's own end.
    pub lifetime: Duration,
}

impl Leaf {
    /// A client's certificate: a user and its groups.
    #[must_use]
    pub fn client(common_name: &str, organizations: &[&str], lifetime: Duration) -> Self {
        Self {
            common_name: common_name.to_owned(),
            organizations: organizations.iter().map(|&group| group.to_owned()).collect(),
            dns_names: Vec::new(),
            ips: Vec::new(),
            usage: Usage::CLIENT,
            lifetime,
        }
    }
}

/// A certificate and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate (or a chain, leaf first), PEM.
    pub certificate_pem: String,
    /// The private key, PKCS#8 PEM.
    pub key_pem: String,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued")
            .field("certificate_pem", &self.certificate_pem)
            .field("key_pem", &"[withheld]")
            .finish()
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("certificate_pem", &self.certificate_pem).field("key", &"[withheld]").finish()
    }
}

impl Authority {
    /// Makes a new authority with a fresh key.
    pub fn create(common_name: &str) -> Result<Self> {
        Self::create_at(common_name, Timestamp::now())
    }

    /// Makes a new authority as if it were `now`.
    pub fn create_at(common_name: &str, now: Timestamp) -> Result<Self> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(Error::GenerateKey)?;
        Self::sign_itself(name(common_name, &[]), key, now)
    }

    /// Takes an authority from its two PEM texts. Of a chain it is the first certificate: whoever signed this authority is not
    /// believed by whoever believes it.
    pub fn load(certificate_pem: &str, key_pem: &str) -> Result<Self> {
        let certificate = first_certificate(certificate_pem)?;
        let key = KeyPair::from_pem(key_pem).map_err(|_| Error::BadKey)?;
        let (_, parsed) =
            X509Certificate::from_der(&certificate).map_err(|_| Error::BadCertificate("not an X.509 certificate"))?;
        if !parsed.is_ca() {
            return Err(Error::NotAnAuthority);
        }
        if parsed.public_key().subject_public_key.data != key.public_key_raw() {
            return Err(Error::KeyMismatch);
        }
        Ok(Self { certificate_pem: first_pem(certificate_pem), certificate, key })
    }

    /// Takes the authority kept in `dir` as `<file_stem>.crt` and `<file_stem>.key`, or makes one and keeps it there.
    ///
    /// An authority past two thirds of its life gets a new certificate over the same name and key: leaves and trust
    /// given out before stay good.
    pub fn load_or_create(dir: &Path, file_stem: &str, common_name: &str) -> Result<Self> {
        Self::load_or_create_at(dir, file_stem, common_name, Timestamp::now())
    }

    /// [`Authority::load_or_create`] as if it were `now`.
    pub fn load_or_create_at(dir: &Path, file_stem: &str, common_name: &str, now: Timestamp) -> Result<Self> {
        let certificate_path = dir.join(format!("{file_stem}.crt"));
        let key_path = dir.join(format!("{file_stem}.key"));
        let authority = match (read_optional(&certificate_path)?, read_optional(&key_path)?) {
            (Some(certificate), Some(key)) => {
                let authority = Self::load(&certificate, &key)?;
                if !renewal_due(&certificate, &now)? {
                    return Ok(authority);
                }
                authority.renew_at(now)?
            }
            (Some(_), None) => return Err(Error::KeyLost { certificate: certificate_path, key: key_path }),
            // A key alone is a first start that crashed before the certificate was written: nobody trusts it yet.
            (None, _) => Self::create_at(common_name, now)?,
        };
        write_private(&key_path, authority.key.serialize_pem().as_bytes())?;
        write_private(&certificate_path, authority.certificate_pem.as_bytes())?;
        Ok(authority)
    }

    /// The authority's certificate: what others trust.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's private key, for a caller that must store it itself. Handle with care.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Issues a leaf with a fresh key.
    pub fn issue(&self, leaf: &Leaf) -> Result<Issued> {
        self.issue_at(leaf, Timestamp::now())
    }

    /// Issues a leaf as if it were `now`.
    pub fn issue_at(&self, leaf: &Leaf, now: Timestamp) -> Result<Issued> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(Error::GenerateKey)?;
        let sign_error = |source| Error::Sign { common_name: leaf.common_name.clone(), source };
        let params = self.leaf_params(leaf, now)?;
        let issuer = Issuer::from_ca_cert_der(&self.certificate, &self.key).map_err(sign_error)?;
        let certificate = params.signed_by(&key, &issuer).map_err(sign_error)?;
        Ok(Issued { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Takes the leaf kept in `dir` as `<file_stem>.crt` and `<file_stem>.key` if it says what `leaf` says, was issued by
    /// this authority and is not due for renewal; issues and keeps a new one otherwise.
    pub fn load_or_issue(&self, dir: &Path, file_stem: &str, leaf: &Leaf) -> Result<Issued> {
        self.load_or_issue_at(dir, file_stem, leaf, Timestamp::now())
    }

    /// [`Authority::load_or_issue`] as if it were `now`.
    pub fn load_or_issue_at(&self, dir: &Path, file_stem: &str, leaf: &Leaf, now: Timestamp) -> Result<Issued> {
        let certificate_path = dir.join(format!("{file_stem}.crt"));
        let key_path = dir.join(format!("{file_stem}.key"));
        if let (Some(certificate_pem), Some(key_pem)) = (read_optional(&certificate_path)?, read_optional(&key_path)?) {
            let kept = Issued { certificate_pem, key_pem };
            if self.still_good(&kept, leaf, now) {
                return Ok(kept);
            }
        }
        let issued = self.issue_at(leaf, now)?;
        write_private(&key_path, issued.key_pem.as_bytes())?;
        write_private(&certificate_path, issued.certificate_pem.as_bytes())?;
        Ok(issued)
    }

    fn renew_at(&self, now: Timestamp) -> Result<Self> {
        let key = KeyPair::from_pem(&self.key.serialize_pem()).map_err(|_| Error::BadKey)?;
        Self::sign_itself(name(&self.common_name()?, &[]), key, now)
    }

    /// Its own name.
    pub(crate) fn common_name(&self) -> Result<String> {
        let identity = crate::identity_of(&self.certificate);
        identity.map(|identity| identity.common_name).ok_or(Error::BadCertificate("the authority has no common name"))
    }

    fn sign_itself(name: DistinguishedName, key: KeyPair, now: Timestamp) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.serial_number = Some(random_serial()?);
        params.not_before = before(now).into();
        params.not_after = (SystemTime::from(now) + AUTHORITY_LIFETIME).into();
        // Path length 0: this authority signs leaves, never another authority.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let sign_error = |source| Error::Sign { common_name: "the authority".to_owned(), source };
        let certificate = params.self_signed(&key).map_err(sign_error)?;
        Ok(Self { certificate_pem: certificate.pem(), certificate: certificate.der().clone(), key })
    }

    fn leaf_params(&self, leaf: &Leaf, now: Timestamp) -> Result<CertificateParams> {
        check(leaf)?;
        let ends = (SystemTime::from(now) + leaf.lifetime).min(end_of(&self.certificate_pem)?);
        let mut params = CertificateParams::default();
        params.distinguished_name = name(&leaf.common_name, &leaf.organizations);
        params.serial_number = Some(random_serial()?);
        params.not_before = before(now).into();
        params.not_after = ends.into();
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        for (wanted, purpose) in [
            (leaf.usage.server, ExtendedKeyUsagePurpose::ServerAuth),
            (leaf.usage.client, ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            if wanted {
                params.insert_extended_key_usage(purpose);
            }
        }
        for dns_name in &leaf.dns_names {
            let dns_name = dns_name.as_str().try_into().map_err(|_| bad(leaf, "a DNS name is not ASCII"))?;
            params.subject_alt_names.push(SanType::DnsName(dns_name));
        }
        params.subject_alt_names.extend(leaf.ips.iter().copied().map(SanType::IpAddress));
        Ok(params)
    }

    pub(crate) fn still_good(&self, kept: &Issued, leaf: &Leaf, now: Timestamp) -> bool {
        let due = renewal_due(&kept.certificate_pem, &now);
        matches!(due, Ok(false)) && self.says_the_same(kept, leaf).unwrap_or(false)
    }

    /// Whether a kept leaf was issued by this authority and carries what `leaf` asks for.
    fn says_the_same(&self, kept: &Issued, leaf: &Leaf) -> Result<bool> {
        let bad = |_| Error::BadCertificate("not an X.509 certificate");
        let certificate = first_certificate(&kept.certificate_pem)?;
        let key = KeyPair::from_pem(&kept.key_pem).map_err(|_| Error::BadKey)?;
        let (_, parsed) = X509Certificate::from_der(&certificate).map_err(bad)?;
        let (_, issuer) = X509Certificate::from_der(&self.certificate).map_err(bad)?;
        let wanted = crate::Identity::of(&leaf.common_name, &leaf.organizations);
        let usage = parsed.extended_key_usage().map_err(|_| Error::BadCertificate("bad extended key usage"))?;
        let usage = usage.map(|usage| Usage { server: usage.value.server_auth, client: usage.value.client_auth });
        Ok(parsed.verify_signature(Some(issuer.public_key())).is_ok()
            && parsed.public_key().subject_public_key.data == key.public_key_raw()
            && crate::identity_of(&certificate) == Some(wanted)
            && usage == Some(leaf.usage)
            && alternative_names(&parsed)? == (leaf.dns_names.clone(), leaf.ips.clone()))
    }
}

fn check(leaf: &Leaf) -> Result<()> {
    if leaf.common_name.is_empty() {
        return Err(bad(leaf, "the common name is empty"));
    }
    if leaf.organizations.len() > 2 {
        return Err(bad(leaf, "more than two organizations"));
    }
    if !leaf.usage.server && !leaf.usage.client {
        return Err(bad(leaf, "it would be good for nothing: neither server nor client"));
    }
    if leaf.usage.server && leaf.dns_names.is_empty() && leaf.ips.is_empty() {
        return Err(bad(leaf, "a server needs a DNS name or an address"));
    }
    Ok(())
}

fn bad(leaf: &Leaf, reason: &'static str) -> Error {
    Error::BadLeaf { common_name: leaf.common_name.clone(), reason }
}

fn name(common_name: &str, organizations: &[String]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    // The name holds one value per attribute *type*; the second organization is the same attribute by its number.
    let types = [DnType::OrganizationName, DnType::CustomDnType(OID_ORGANIZATION.to_vec())];
    for (attribute, organization) in types.into_iter().zip(organizations) {
        name.push(attribute, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

/// The text of the first certificate.
fn first_pem(certificates: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let first = certificates.split(END).next().unwrap_or_default();
    format!("{first}{END}\n")
}

fn before(now: Timestamp) -> SystemTime {
    SystemTime::from(now) - BACKDATE
}

fn end_of(certificate_pem: &str) -> Result<SystemTime> {
    let seconds = u64::try_from(validity(certificate_pem)?.not_after);
    let seconds = seconds.map_err(|_| Error::BadCertificate("it ended before 1970"))?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

fn random_serial() -> Result<SerialNumber> {
    let mut bytes = [0u8; SERIAL_BYTES];
    crate::provider().secure_random.fill(&mut bytes).map_err(|_| Error::Random)?;
    // Positive (top bit clear) and never shorter than it looks (next bit set).
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Result<(Vec<String>, Vec<IpAddr>)> {
    use x509_parser::extensions::GeneralName;
    let names =
        certificate.subject_alternative_name().map_err(|_| Error::BadCertificate("bad subject alternative name"))?;
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let dns_names = names
        .iter()
        .filter_map(|name| if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None });
    let ips =
        names.iter().filter_map(|name| if let GeneralName::IPAddress(bytes) = name { address(bytes) } else { None });
    Ok((dns_names.collect(), ips.collect()))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four: Option<[u8; 4]> = bytes.try_into().ok();
    let sixteen: Option<[u8; 16]> = bytes.try_into().ok();
    four.map(IpAddr::from).or_else(|| sixteen.map(IpAddr::from))
}
