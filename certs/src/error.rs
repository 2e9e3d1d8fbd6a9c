//! What can go wrong with certificates. No variant carries key material.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What was being done when it went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Key generation failed.
    #[error("generating a private key")]
    GenerateKey(#[source] rcgen::Error),
    /// A certificate could not be signed.
    #[error("signing the certificate of {common_name}")]
    Sign {
        /// Common name of the certificate.
        common_name: String,
        /// Cause.
        source: rcgen::Error,
    },
    /// A leaf was asked for that cannot be expressed.
    #[error("the certificate of {common_name} cannot be issued: {reason}")]
    BadLeaf {
        /// Common name of the certificate.
        common_name: String,
        /// Why not.
        reason: &'static str,
    },
    /// The system's source of randomness failed.
    #[error("drawing a random serial number")]
    Random,
    /// A PEM text holds no certificate, or one that does not parse.
    #[error("reading a PEM certificate: {0}")]
    BadCertificate(&'static str),
    /// A PEM text holds no usable private key.
    #[error("reading a PEM private key")]
    BadKey,
    /// The certificate is not one of an authority.
    #[error("the certificate of the authority is not a CA certificate")]
    NotAnAuthority,
    /// Certificate and key do not belong together.
    #[error("the certificate and the private key do not belong together")]
    KeyMismatch,
    /// An authority's certificate was found without its key.
    #[error("{certificate} exists but {key} does not: restore the key, or remove both to start with a new authority")]
    KeyLost {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// No certificate authority was given where one is needed.
    #[error("building a verifier: no certificate authority given")]
    NoAuthorities,
    /// A TLS configuration could not be built.
    #[error("building a TLS configuration")]
    Tls(#[source] rustls::Error),
    /// A verifier could not be built.
    #[error("building a certificate verifier")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
    /// A file could not be read.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("writing {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
}
