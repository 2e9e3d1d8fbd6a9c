//! A generic Kubernetes API server, and the group `redis.kun.io` on top of it.
//!
//! A request is parsed (`route`), filtered (`filter`), and answered by a verb that is generic over the entries of
//! the registry. Objects go through admission ([`admission`] is the seam, `admit` the chain) into the store.

pub mod admission;
pub mod error;
pub mod handler;
pub mod request;
pub mod wire;
