//! Objects as JSON values: metadata, shape, selectors, templates. Pure; knows no kind by name.

pub mod managed;
pub mod meta;
pub mod meta_schema;
pub mod name;
pub mod owned;
pub mod selector;
pub mod shape;
pub mod template;
