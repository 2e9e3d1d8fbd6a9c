//! Authorities, certificates and who is believed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod authority;
mod handshake;
mod shown;
