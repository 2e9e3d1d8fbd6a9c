//! The edge of the server over real TLS: who gets in, how much, how fast, and how it ends. And the admission chain
//! against real webhook servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod abuse;
mod admission;
mod client;
#[path = "../../store/tests/robust/clock.rs"]
mod clock;
mod drain;
mod filters;
mod frames;
mod hooks;
mod limits;
mod order;
mod rights;
mod stage;
mod trail;
mod versions;
mod whole;
