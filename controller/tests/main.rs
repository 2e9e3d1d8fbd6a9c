//! What the controller makes in Kubernetes, with Kubernetes in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod claims;
mod erasers;
mod kubernetes;
mod labels;
mod memory;
mod refused;
mod standing;
