//! Objects over a schema: what a structural OpenAPI v3 schema says about a JSON value, and how patches change one.
//!
//! Everything is a pure function on `serde_json::Value`. It must not know any kind, HTTP, storage, a clock or a task
//! runtime. Server-side apply works on the same [`Schema`]: [`fields`] are sets of places, [`typed`] walks values, [`managed`] is who owns
//! what, [`own`] is what a write does to it.

mod check;
mod decode;
mod default;
pub mod fields;
pub mod managed;
mod metadata;
pub mod own;
mod patch;
mod path;
mod prune;
mod schema;
mod strategic;
pub mod typed;

pub use check::{Fault, FaultKind, check};
pub use decode::{Decoded, Error as DecodeError, Limits, decode, duplicates};
pub use default::default;
pub use patch::{Error as PatchError, JSON_PATCH_OPERATIONS_MAX, json_patch, merge_patch};
pub use prune::prune;
pub use schema::{Array, Error as SchemaError, ListType, MapType, Node, Object, Schema, Shape};
pub use strategic::{STRATEGIC_ITEMS_MAX, strategic_merge_patch};
