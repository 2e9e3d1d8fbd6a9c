//! The admission chain: everything that may change or refuse an operation before it is stored.
//!
//! The order is Kubernetes': namespace lifecycle, mutating webhooks one after the other; later, on what is about to be
//! stored, validating webhooks side by side. Which webhooks there are is read from their configuration objects at every
//! request, through [`source::Sources`]. ValidatingAdmissionPolicy, MutatingAdmissionPolicy and ResourceQuota are not
//! built yet: this server does not serve their kinds, so nobody can believe they work.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::admission::{Admission, Attributes, Operation};
use crate::error::{Error, Qualified, Result};
use crate::filter::audit;

pub mod call;
pub mod config;
pub mod escalate;
mod lifecycle;
mod mutate;
mod patch;
mod review;
pub mod select;
pub mod source;
mod validate;

use call::Caller;
use source::Sources;

/// API group of the webhook configurations themselves. They are never sent to webhooks: one that refused them could not
/// be removed any more.
const REGISTRATION: &str = "admissionregistration.k8s.io";

/// The real admission chain.
pub struct Chain {
    sources: Arc<dyn Sources>,
    caller: Arc<Caller>,
}

impl Chain {
    /// A chain that reads the world through `sources` and calls webhooks through `caller`.
    #[must_use]
    pub fn new(sources: Arc<dyn Sources>, caller: Arc<Caller>) -> Self {
        Self { sources, caller }
    }

    async fn mutated(&self, attributes: &Attributes, object: Value) -> Result<Value> {
        tell_audit(attributes);
        lifecycle::check(attributes, &object, self.sources.as_ref()).await?;
        if attributes.resource.group == REGISTRATION {
            return Ok(object);
        }
        let hooks = self.sources.hooks(config::Kind::Mutating)?;
        mutate::run(&hooks, attributes, object, self.sources.as_ref(), &self.caller).await
    }

    async fn validated(&self, attributes: &Attributes) -> Result<()> {
        tell_audit(attributes);
        if attributes.resource.group == REGISTRATION {
            return config_is_sound(attributes);
        }
        let hooks = self.sources.hooks(config::Kind::Validating)?;
        validate::run(&hooks, attributes, self.sources.as_ref(), &self.caller).await
    }
}

impl Admission for Chain {
    fn mutate<'a>(&'a self, attributes: &'a Attributes, object: Value) -> BoxFuture<'a, Result<Value>> {
        Box::pin(self.mutated(attributes, object))
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.validated(attributes))
    }
}

/// Tells the audit what the URL does not: the name of what is created, and that a body asked for a dry run.
fn tell_audit(attributes: &Attributes) {
    if attributes.operation == Operation::Create && !attributes.name.is_empty() {
        attributes.annotations.set(audit::ANNOTATION_NAME, &attributes.name);
    }
    if attributes.dry_run {
        attributes.annotations.set(audit::ANNOTATION_DRY_RUN, "true");
    }
}

/// A webhook configuration this server would not understand is refused when it is written, not when it is needed.
fn config_is_sound(attributes: &Attributes) -> Result<()> {
    let Some(object) = &attributes.object else { return Ok(()) };
    let Some(kind) = config::Kind::of(&attributes.resource.name) else { return Ok(()) };
    let causes = config::check(kind, object);
    if causes.is_empty() {
        return Ok(());
    }
    let kind = Qualified::new(&attributes.kind.group, &attributes.kind.name);
    Err(Error::Invalid { kind, name: attributes.name.clone(), causes })
}
