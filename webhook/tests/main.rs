//! What the webhook decides, and how it serves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod actions;
mod asking;
mod behind;
mod leftovers;
mod policies;
mod reach;
mod server;
mod transitions;
mod warnings;
