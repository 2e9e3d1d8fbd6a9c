//! A generic Kubernetes API server, and the group `redis.kun.io` on top of it.
//!
//! A request is parsed ([`route`]), filtered ([`filter`]), and answered by a verb ([`verb`]) that is generic over the
//! entries of the registry ([`registry`]). Objects go through admission ([`admission`] is the seam, `admit` the chain)
//! into the store ([`storage`]). [`app::App`] is the whole behind the filters.

pub mod admission;
pub mod admit;
pub mod app;
pub mod configuration;
pub mod delegate;
pub mod encryption;
pub mod error;
pub mod filter;
pub mod handler;
pub mod object;
mod parsed;
pub mod registry;
pub mod request;
pub mod resource;
pub mod route;
pub mod serve;
pub mod site;
pub mod storage;
pub mod verb;
pub mod wire;
pub mod world;
