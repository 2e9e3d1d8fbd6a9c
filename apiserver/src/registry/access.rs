//! What the parts of an installation do with the objects of a kind, as its entry says. What no entry says, no part may
//! do: the rights of standalone's identities are computed from here.
//!
//! This module must not know how identities are called or how rights are checked.

use crate::request::Verb;

/// A part that acts through the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The controller.
    Controller,
    /// The webhook.
    Webhook,
    /// Standalone's node.
    Node,
}

/// What one part does with the objects of a kind, or with one subresource of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who.
    pub part: Part,
    /// The subresource; `None` is the object itself.
    pub subresource: Option<&'static str>,
    /// Does what.
    pub verbs: &'static [Verb],
}

/// Follows all objects.
pub const FOLLOW: &[Verb] = &[Verb::List, Verb::Watch];
/// Makes, changes and deletes objects of its own.
pub const OWN: &[Verb] = &[Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Patch, Verb::Delete];

impl Access {
    /// What a part does with objects.
    #[must_use]
    pub const fn of(part: Part, verbs: &'static [Verb]) -> Self {
        Self { part, subresource: None, verbs }
    }

    /// What a part does with a subresource.
    #[must_use]
    pub const fn to(part: Part, subresource: &'static str, verbs: &'static [Verb]) -> Self {
        Self { part, subresource: Some(subresource), verbs }
    }
}
