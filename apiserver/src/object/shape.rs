//! The compiled schema of a kind, and its findings in the words of this server.

use serde_json::Value;

use crate::error::Cause;

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct Shape(merge::Schema);

impl Shape {
    /// Compiles a schema; the fields of `metadata` need not be described.
    pub fn new(schema: &Value) -> Result<Self, merge::SchemaError> {
        merge::Schema::compile(schema).map(Self)
    }

    /// The schema as managers share its fields.
    #[must_use]
    pub const fn shared(&self) -> &merge::Node {
        self.0.shared()
    }

    /// Removes unknown fields and tells their paths.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        merge::prune(&self.0, object)
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        merge::default(&self.0, object);
    }

    /// Every fault against the schema.
    #[must_use]
    pub fn faults(&self, object: &Value) -> Vec<Cause> {
        merge::check(&self.0, object).into_iter().map(cause).collect()
    }
}

fn cause(fault: merge::Fault) -> Cause {
    let kind = match fault.kind {
        merge::FaultKind::Required => types::field::FaultKind::Required,
        merge::FaultKind::Invalid => types::field::FaultKind::Invalid,
        merge::FaultKind::TypeInvalid => types::field::FaultKind::TypeInvalid,
        merge::FaultKind::NotSupported => types::field::FaultKind::NotSupported,
        merge::FaultKind::Duplicate => types::field::FaultKind::Duplicate,
        merge::FaultKind::TooLong => types::field::FaultKind::TooLong,
        merge::FaultKind::TooMany => types::field::FaultKind::TooMany,
    };
    let path = types::field::Path::new(&fault.path);
    types::field::Fault { path, kind, bad_value: fault.bad_value, detail: fault.detail }.into()
}

impl From<types::field::Fault> for Cause {
    fn from(fault: types::field::Fault) -> Self {
        Self { reason: fault.kind.reason().to_owned(), message: fault.message(), field: fault.path.as_str().to_owned() }
    }
}
