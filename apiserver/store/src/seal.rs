//! Values at rest as Kubernetes seals them, so that either can read what the other wrote. Pure, but for random nonces.
//!
//! A sealed value is `k8s:enc:METHOD:v1:KEYNAME:`, a nonce and the ciphertext. AES-GCM binds the value to its place: the
//! path of the key in the store is additional data, so that a value that was moved to another key does not open.
//! Which method and key is used is decided per resource ([`Keyring`]): the first one writes, all read, and what another
//! than the first one wrote is stale.
//!
//! No secret is ever part of an error or of what `Debug` prints. Keys are wiped when they are dropped.

use std::fmt;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use bytes::Bytes;
use crypto_secretbox::aead::AeadInPlace;
use crypto_secretbox::{KeyInit, XSalsa20Poly1305};

/// How every sealed value begins; no object does.
const SEALED: &[u8] = b"k8s:enc:";

/// The most that sealing adds to a value: prefix, key name, nonce and tag.
pub(crate) const SEAL_LIMIT: usize = 512;

/// Longest name of a key, so that what sealing adds to a value has a limit.
pub const KEY_NAME_LIMIT: usize = 253;

/// Nonce and tag of a secretbox.
const BOX_NONCE: usize = 24;
const BOX_TAG: usize = 16;

/// Whether `value` was sealed by anybody.
pub(crate) fn is_sealed(value: &[u8]) -> bool {
    value.starts_with(SEALED)
}

/// How values are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// AES-GCM with keys of 16, 24 or 32 bytes.
    AesGcm,
    /// XSalsa20-Poly1305 with keys of 32 bytes.
    Secretbox,
}

impl Method {
    /// How many bytes a key may have.
    #[must_use]
    pub const fn key_lengths(self) -> &'static [usize] {
        match self {
            Method::AesGcm => &[16, 24, 32],
            Method::Secretbox => &[32],
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Method::AesGcm => "k8s:enc:aesgcm:v1:",
            Method::Secretbox => "k8s:enc:secretbox:v1:",
        }
    }

    /// What is said of a value none of whose keys is here: Kubernetes' own words.
    const fn no_key(self) -> &'static str {
        match self {
            Method::AesGcm => "no matching key was found for the provided AES transformer",
            Method::Secretbox => "no matching key was found for the provided Secretbox transformer",
        }
    }
}

/// Why a key or a value could not be used. Never tells a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The secret's length does not fit the method.
    #[error("secret is not of the expected length, got {got}, expected one of {expected:?}")]
    KeyLength {
        /// Its length.
        got: usize,
        /// Those that would do.
        expected: &'static [usize],
    },
    /// The key's name is empty or too long.
    #[error("the name of a key has 1 to {KEY_NAME_LIMIT} characters")]
    KeyName,
    /// There were no random bytes, or the cipher refused.
    #[error("sealing the value: the cipher failed")]
    Cipher,
}

/// One key with its name.
pub struct SealKey {
    /// What follows the method's prefix in a sealed value: the name and a colon.
    label: String,
    cipher: Cipher,
}

enum Cipher {
    AesGcm(LessSafeKey),
    Secretbox(Box<XSalsa20Poly1305>),
}

impl SealKey {
    /// A key of a method.
    ///
    /// # Errors
    /// When the name or the length of the secret cannot be used.
    pub fn new(method: Method, name: &str, secret: &[u8]) -> Result<SealKey, SealError> {
        if name.is_empty() || name.len() > KEY_NAME_LIMIT {
            return Err(SealError::KeyName);
        }
        let length = SealError::KeyLength { got: secret.len(), expected: method.key_lengths() };
        let cipher = match method {
            Method::AesGcm => {
                let algorithm: &'static Algorithm = match secret.len() {
                    16 => &AES_128_GCM,
                    24 => &AES_192_GCM,
                    32 => &AES_256_GCM,
                    _ => return Err(length),
                };
                let key = UnboundKey::new(algorithm, secret).map_err(|_| SealError::Cipher)?;
                Cipher::AesGcm(LessSafeKey::new(key))
            }
            Method::Secretbox => {
                Cipher::Secretbox(Box::new(XSalsa20Poly1305::new_from_slice(secret).map_err(|_| length)?))
            }
        };
        Ok(SealKey { label: format!("{name}:"), cipher })
    }

    /// Appends nonce and ciphertext of `plain` to `out`.
    fn seal(&self, place: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        match &self.cipher {
            Cipher::AesGcm(key) => {
                let nonce = random::<NONCE_LEN>()?;
                out.extend_from_slice(&nonce);
                let start = out.len();
                out.extend_from_slice(plain);
                let body = out.get_mut(start..).unwrap_or_default();
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(place), body);
                out.extend_from_slice(tag.map_err(|_| SealError::Cipher)?.as_ref());
            }
            Cipher::Secretbox(key) => {
                let nonce = random::<BOX_NONCE>()?;
                out.extend_from_slice(&nonce);
                let tag = out.len();
                out.extend_from_slice(&[0; BOX_TAG]);
                out.extend_from_slice(plain);
                let (tag, body) =
                    out.get_mut(tag..).and_then(|rest| rest.split_at_mut_checked(BOX_TAG)).ok_or(SealError::Cipher)?;
                let made = key.encrypt_in_place_detached(&nonce.into(), &[], body).map_err(|_| SealError::Cipher)?;
                tag.copy_from_slice(&made);
            }
        }
        Ok(())
    }

    /// Opens nonce and ciphertext; a sentence when they are not what this key wrote.
    fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Bytes, String> {
        match &self.cipher {
            Cipher::AesGcm(key) => {
                let refused = || "cipher: message authentication failed".to_owned();
                let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>().ok_or_else(refused)?;
                let mut body = body.to_vec();
                let plain = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(place), &mut body);
                let length = plain.map_err(|_| refused())?.len();
                body.truncate(length);
                Ok(body.into())
            }
            Cipher::Secretbox(key) => {
                let refused = || "output array was not large enough for encryption".to_owned();
                let (nonce, rest) = sealed.split_first_chunk::<BOX_NONCE>().ok_or_else(refused)?;
                let (tag, body) = rest.split_first_chunk::<BOX_TAG>().ok_or_else(refused)?;
                let mut body = body.to_vec();
                let opened = key.decrypt_in_place_detached(&(*nonce).into(), &[], &mut body, &(*tag).into());
                opened.map_err(|_| refused())?;
                Ok(body.into())
            }
        }
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKey({})", self.label.trim_end_matches(':'))
    }
}

fn random<const N: usize>() -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| SealError::Cipher)?;
    Ok(bytes)
}

/// One way to seal and open.
#[derive(Debug)]
pub enum Provider {
    /// Nothing is sealed.
    Identity,
    /// Keys of one method, the first of which writes.
    Keys(Method, Vec<SealKey>),
}

impl Provider {
    fn seal(&self, place: &[u8], plain: Bytes) -> Result<Bytes, SealError> {
        let (method, keys) = match self {
            Provider::Identity => return Ok(plain),
            Provider::Keys(method, keys) => (method, keys),
        };
        let key = keys.first().ok_or(SealError::Cipher)?;
        let mut out = Vec::with_capacity(plain.len() + SEAL_LIMIT);
        out.extend_from_slice(method.prefix().as_bytes());
        out.extend_from_slice(key.label.as_bytes());
        key.seal(place, &plain, &mut out)?;
        Ok(out.into())
    }

    /// None when the value is none of this provider's.
    fn open(&self, place: &[u8], value: &Bytes) -> Option<Result<Opened, String>> {
        let (method, keys) = match self {
            Provider::Identity if is_sealed(value) => return None,
            Provider::Identity => return Some(Ok(Opened { value: value.clone(), is_stale: false })),
            Provider::Keys(method, keys) => (method, keys),
        };
        let rest = value.strip_prefix(method.prefix().as_bytes())?;
        let mut why = method.no_key().to_owned();
        for (at, key) in keys.iter().enumerate() {
            match rest.strip_prefix(key.label.as_bytes()).map(|sealed| key.open(place, sealed)) {
                None => {}
                Some(Ok(value)) => return Some(Ok(Opened { value, is_stale: at > 0 })),
                Some(Err(refused)) => why = refused,
            }
        }
        Some(Err(why))
    }
}

/// A value as it was before it was sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The encoded object.
    pub value: Bytes,
    /// It was sealed by another than what writes now: the next write puts it right.
    pub is_stale: bool,
}

/// Which resources a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// `*.*`.
    All,
    /// `*.apps`, or `*.` for the core group, whose name is empty.
    Group(String),
    /// `secrets`, or `redisclusters.redis.kun.io`.
    One {
        /// The group; empty for the core group.
        group: String,
        /// The plural.
        resource: String,
    },
}

impl Pattern {
    fn matches(&self, group: &str, plural: &str) -> bool {
        match self {
            Pattern::All => true,
            Pattern::Group(only) => only == group,
            Pattern::One { group: only, resource } => only == group && resource == plural,
        }
    }
}

/// What seals the values of some resources.
#[derive(Debug)]
pub struct Rule {
    /// Which.
    pub resources: Vec<Pattern>,
    /// The first one writes, all are tried to read.
    pub providers: Vec<Provider>,
}

/// All rules. The narrowest pattern that matches a resource decides; what no rule is about is not sealed.
#[derive(Debug, Default)]
pub struct Keyring {
    rules: Vec<Rule>,
}

impl Keyring {
    /// The rules in their order.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Keyring {
        Keyring { rules }
    }

    /// The providers of a resource such as `apps/statefulsets` or `secrets`, in their order.
    fn providers(&self, resource: &str) -> Vec<&Provider> {
        let (group, plural) = resource.split_once('/').unwrap_or(("", resource));
        let matching = |narrow: fn(&Pattern) -> bool| -> Vec<&Provider> {
            let is_meant = |rule: &&Rule| rule.resources.iter().any(|p| narrow(p) && p.matches(group, plural));
            self.rules.iter().filter(is_meant).flat_map(|rule| &rule.providers).collect()
        };
        let widths: [fn(&Pattern) -> bool; 3] = [
            |pattern| matches!(pattern, Pattern::One { .. }),
            |pattern| matches!(pattern, Pattern::Group(_)),
            |pattern| matches!(pattern, Pattern::All),
        ];
        widths.into_iter().map(matching).find(|found| !found.is_empty()).unwrap_or_else(|| vec![&Provider::Identity])
    }

    /// Seals an object of `resource` that is kept at `place`.
    ///
    /// # Errors
    /// When the cipher fails.
    pub fn seal(&self, resource: &str, place: &[u8], plain: Bytes) -> Result<Bytes, SealError> {
        self.providers(resource).first().ok_or(SealError::Cipher)?.seal(place, plain)
    }

    /// Opens what is kept at `place`.
    ///
    /// # Errors
    /// A sentence, as Kubernetes says it, when nobody here can.
    pub fn open(&self, resource: &str, place: &[u8], value: &Bytes) -> Result<Opened, String> {
        let providers = self.providers(resource);
        let mut failures: Vec<String> = Vec::new();
        for (at, provider) in providers.iter().enumerate() {
            match provider.open(place, value) {
                None => {}
                Some(Ok(opened)) => return Ok(Opened { is_stale: opened.is_stale || at > 0, ..opened }),
                Some(Err(why)) if failures.contains(&why) => {}
                Some(Err(why)) => failures.push(why),
            }
        }
        Err(match failures.as_slice() {
            [] if matches!(providers.as_slice(), [Provider::Identity]) => {
                "identity transformer tried to read encrypted data".to_owned()
            }
            [] => "no matching prefix found".to_owned(),
            [only] => only.clone(),
            several => format!("[{}]", several.join(", ")),
        })
    }
}

#[cfg(test)]
mod tests;
