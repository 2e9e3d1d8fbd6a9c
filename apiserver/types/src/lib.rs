//! The API of `redis.kun.io/v1`: kinds, defaults, validation, child names, conditions.
//!
//! Everything here is pure. This crate must not know HTTP, storage, Redis commands, a clock or a task runtime;
//! the API server, the webhook, the controller and the agent share it so that they cannot drift apart.

pub mod agent;
pub mod backup;
pub mod cluster;
pub mod condition;
pub mod config;
pub mod defaults;
pub mod duration;
pub mod engine;
pub mod exclusion;
pub mod field;
pub mod image;
mod int_or_string;
pub mod label;
pub mod last_words;
pub mod names;
pub mod operation;
pub mod password;
pub mod patience;
pub mod policy;
pub mod quantity;
pub mod record;
pub mod schema;
mod sizing;
pub mod validate;
pub mod version;

pub use backup::RedisBackup;
pub use cluster::RedisCluster;
pub use condition::Condition;
pub use operation::RedisOperation;
pub use policy::RedisPolicy;

/// The API group of every kind in this crate.
pub const GROUP: &str = "redis.kun.io";
/// The served and stored version.
pub const VERSION: &str = "v1";
/// `GROUP/VERSION`, as it appears in `apiVersion`.
pub const API_VERSION: &str = "redis.kun.io/v1";

/// Implements the Kubernetes resource traits, from which every typed client derives paths and scope.
macro_rules! kind {
    ($type:ident, $kind:literal, $plural:literal, $scope:ty) => {
        impl k8s_openapi::Resource for $type {
            const API_VERSION: &'static str = crate::API_VERSION;
            const GROUP: &'static str = crate::GROUP;
            const KIND: &'static str = $kind;
            const VERSION: &'static str = crate::VERSION;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = $scope;
        }
        impl k8s_openapi::Metadata for $type {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }
            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
        /// The value of a `kind` that a client left out.
        fn kind() -> String {
            $kind.to_owned()
        }
    };
}
pub(crate) use kind;

/// The value of an `apiVersion` that a client left out.
fn api_version() -> String {
    API_VERSION.to_owned()
}

/// The schema of `metadata`: an object whose content the API server itself defines.
pub(crate) fn metadata_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object"})
}
