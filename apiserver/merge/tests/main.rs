//! Merging by schema, and what a hostile input does to it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "fuzz/main.rs"]
mod fuzz;
mod input;
mod schema;
