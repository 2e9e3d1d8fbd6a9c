//! Certificates: a certificate authority of our own, the leaves it issues, and TLS configurations that follow them.
//!
//! This crate knows X.509, files and rustls. It must not know who talks to whom: names, lifetimes and trust are arguments.
//! Keys are P-256, the provider is aws-lc-rs, TLS is 1.2 and 1.3. No private key ever appears in a `Debug` output.

mod authority;
mod error;
mod files;
mod identity;
mod reload;
pub mod ring;
mod shown;
mod tls;

pub use authority::{Authority, Issued, Leaf, Usage};
pub use error::{Error, Result};
pub use files::write_private;
pub use identity::{Identity, identity_of, peer_identity, renewal_due};
pub use reload::{Material, MaterialPaths, Reloading};
pub use ring::{Ring, Turn};
pub use shown::{Anchors, Shown};
pub use tls::{ALPN_H1, ALPN_H2, ClientAuth, client_config, provider, server_config};
