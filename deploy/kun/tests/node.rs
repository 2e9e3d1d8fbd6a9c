//! The node against a real API server (in process, over TLS, store in memory) with small scripts as pods.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

#[path = "node/stage.rs"]
mod stage;

#[path = "node/collection.rs"]
mod collection;
#[path = "node/lifecycle.rs"]
mod lifecycle;
#[path = "node/sets.rs"]
mod sets;
#[path = "node/volumes.rs"]
mod volumes;
