//! The kinds this API serves, from its discovery: what garbage collection and namespace deletion work on.

use kube::Client;
use kube::core::ApiResource;
use kube::discovery::{Discovery, Scope, verbs};

/// One kind.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Its names.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether its objects can be listed, watched and deleted.
    pub can_be_collected: bool,
}

impl Kind {
    /// Whether garbage collection covers it. Events name an object but are not owned, and there are many.
    #[must_use]
    pub fn is_collected(&self) -> bool {
        self.can_be_collected && self.resource.kind != "Event"
    }
}

/// Asks the API for its kinds.
pub async fn discover(client: &Client) -> Result<Vec<Kind>, kube::Error> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut kinds = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let can = |verb| capabilities.supports_operation(verb);
            kinds.push(Kind {
                namespaced: capabilities.scope == Scope::Namespaced,
                can_be_collected: can(verbs::LIST) && can(verbs::WATCH) && can(verbs::DELETE),
                resource,
            });
        }
    }
    kinds.sort_by(|a, b| (&a.resource.group, &a.resource.plural).cmp(&(&b.resource.group, &b.resource.plural)));
    Ok(kinds)
}
