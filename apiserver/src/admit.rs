//! The admission chain: everything that may change or refuse an operation before it is stored.
//!
//! The order is Kubernetes': namespace lifecycle, mutating policies, mutating webhooks one after the other, and both
//! again for those who ask for it; later, on what is about to be stored, validating policies, validating webhooks side
//! by side, and quotas last, so that what is refused is never charged. Which webhooks and policies there are is read
//! from their objects at every request, through [`source::Sources`].
//!
//! What cannot be evaluated is never skipped silently: it follows its failure policy, is counted and logged.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::admission::{Admission, Attributes, Operation};
use crate::error::{Error, Qualified, Result};
use crate::filter::audit;
use crate::filter::authz::Authorizer;
use crate::registry::Registry;
use crate::storage::Storage;

pub mod call;
pub mod condition;
pub mod config;
mod count;
pub mod escalate;
pub mod expression;
mod lifecycle;
mod means;
mod mutate;
mod patch;
pub mod policy;
pub mod quota;
mod review;
pub mod select;
mod sight;
pub mod source;
mod validate;

use call::Caller;
use count::Counts;
use means::Means;
use mutate::Again;
use quota::{Ledger, Quotas};
use source::{NotReady, Sources, StoreSources};

/// API group of the webhook configurations themselves. They are never sent to webhooks: one that refused them could not
/// be removed any more.
const REGISTRATION: &str = "admissionregistration.k8s.io";

/// The real admission chain.
pub struct Chain {
    sources: Arc<dyn Sources>,
    caller: Arc<Caller>,
    authorizer: Option<Arc<dyn Authorizer>>,
    quotas: Option<Arc<dyn Quotas>>,
    ledger: Ledger,
    counts: Counts,
}

/// Rounds of everything that changes objects: what asks for it sees the changes of those after it, once.
const ROUNDS: usize = 2;

/// Time between two looks at what quotas count.
const QUOTA_PERIOD: Duration = Duration::from_secs(5);

impl Chain {
    /// A chain that reads the world through `sources` and calls webhooks through `caller`. It charges no quota and knows
    /// nobody to ask about rights until it is given them.
    #[must_use]
    pub fn new(sources: Arc<dyn Sources>, caller: Arc<Caller>) -> Self {
        let counts = Counts::new(caller.metrics());
        Self { sources, caller, authorizer: None, quotas: None, ledger: Ledger::default(), counts }
    }

    /// A chain that reads everything, quotas too, from the server's own store.
    #[must_use]
    pub fn over(storage: Arc<Storage>, registry: Registry, caller: Arc<Caller>) -> Self {
        let sources = Arc::new(StoreSources::new(storage, registry));
        let quotas = Arc::clone(&sources) as Arc<dyn Quotas>;
        Self { quotas: Some(quotas), ..Self::new(sources, caller) }
    }

    /// The same chain; expressions may ask `authorizer` about rights.
    #[must_use]
    pub fn with_authorizer(self, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer: Some(authorizer), ..self }
    }

    /// The same chain; creates are charged to `quotas`.
    #[must_use]
    pub fn with_quotas(self, quotas: Arc<dyn Quotas>) -> Self {
        Self { quotas: Some(quotas), ..self }
    }

    /// Keeps the status of quotas up to date, for those who look at it, until it is dropped. What admission decides does
    /// not depend on it.
    pub async fn keep_quotas(&self) {
        let Some(quotas) = &self.quotas else { return };
        loop {
            tokio::time::sleep(QUOTA_PERIOD).await;
            if let Err(error) = self.ledger.refresh(quotas.as_ref()).await {
                tracing::warn!(%error, "the status of quotas could not be brought up to date");
            }
        }
    }

    fn means(&self) -> Means<'_> {
        let (sources, caller) = (self.sources.as_ref(), self.caller.as_ref());
        Means { sources, caller, authorizer: self.authorizer.as_deref(), counts: &self.counts }
    }

    async fn mutated(&self, attributes: &Attributes, mut object: Value) -> Result<Value> {
        tell_audit(attributes);
        lifecycle::check(attributes, &object, self.sources.as_ref()).await?;
        if attributes.resource.group == REGISTRATION {
            return Ok(object);
        }
        let early = |why| too_early(attributes, &object, why);
        let policies = self.sources.policies(policy::Kind::Mutating).map_err(early)?;
        let hooks = self.sources.hooks(config::Kind::Mutating).map_err(early)?;
        let (mut policies_again, mut hooks_again) = (Again::default(), Again::default());
        for _round in 0..ROUNDS {
            object = policy::mutate::run(&policies, attributes, object, self.means(), &mut policies_again).await?;
            object = mutate::run(&hooks, attributes, object, self.means(), &mut hooks_again).await?;
            if !policies_again.has_changed() && !hooks_again.has_changed() {
                break;
            }
        }
        Ok(object)
    }

    async fn validated(&self, attributes: &Attributes) -> Result<()> {
        tell_audit(attributes);
        if attributes.resource.group == REGISTRATION {
            return config_is_sound(attributes);
        }
        let object = attributes.object.as_deref().unwrap_or(&Value::Null);
        let early = |why| too_early(attributes, object, why);
        let policies = self.sources.policies(policy::Kind::Validating).map_err(early)?;
        policy::validate::run(&policies, attributes, self.means()).await?;
        let hooks = self.sources.hooks(config::Kind::Validating).map_err(early)?;
        validate::run(&hooks, attributes, self.means()).await?;
        match &self.quotas {
            Some(quotas) => self.ledger.charge(attributes, quotas.as_ref(), &self.counts).await,
            None => Ok(()),
        }
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

/// The refusal while it is not known who wants to be asked.
fn too_early(attributes: &Attributes, object: &Value, why: NotReady) -> Error {
    validate::forbidden(attributes, &lifecycle::shown_name(attributes, object), &why.to_string())
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

/// A webhook configuration or a policy this server would not understand is refused when it is written, not when it is
/// needed.
fn config_is_sound(attributes: &Attributes) -> Result<()> {
    let (Some(object), None) = (&attributes.object, &attributes.subresource) else { return Ok(()) };
    let plural = attributes.resource.name.as_str();
    let policies = [policy::Kind::Validating, policy::Kind::Mutating];
    let causes = if let Some(kind) = config::Kind::of(plural) {
        config::check(kind, object)
    } else if let Some(kind) = policies.into_iter().find(|kind| kind.policies() == plural) {
        policy::config::policy_faults(kind, object)
    } else if let Some(kind) = policies.into_iter().find(|kind| kind.bindings() == plural) {
        policy::config::binding_faults(kind, object)
    } else {
        Vec::new()
    };
    if causes.is_empty() {
        return Ok(());
    }
    let kind = Qualified::new(&attributes.kind.group, &attributes.kind.name);
    Err(Error::Invalid { kind, name: attributes.name.clone(), causes })
}
