//! The planner against its model: every world, script and table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod bites;
mod properties;
mod scripts;
mod stories;
mod support;
mod table;
