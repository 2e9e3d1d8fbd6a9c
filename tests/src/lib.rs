//! The harness of the whole-system tests and the demo: a real `kun standalone`, real kubectl, real redis-server.
//!
//! It must not know how KUN works inside: it sees what a user sees (kubectl, Redis clients, processes, files). The one
//! exception is [`fleet`], which drives the controller's steps on plain redis-servers, without Kubernetes.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing a JSON value yields null where something is absent, it does not panic"
)]

pub mod aggregated;
pub mod cert_manager;
pub mod cluster;
pub mod control_plane;
pub mod fixture;
pub mod fleet;
mod follow;
pub mod installed;
pub mod kubectl;
pub mod kubernetes;
pub mod left_behind;
pub mod oracle;
pub mod standalone;
pub mod story;
pub mod writer;
