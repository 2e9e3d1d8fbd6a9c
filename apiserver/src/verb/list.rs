//! LIST: one page of one snapshot; the objects are shared bytes, never decoded unless a view asks for it.

use std::sync::Arc;

use store::{
    Revision,
    cache::{self, Filter, Marks, Object, Query},
};

use super::{
    Answer, Work,
    options::{ListOptions, Match},
    token::Token,
};
use crate::{
    error::{Error, Result},
    object::selector::{Fields, Selector},
    registry::{Kind, Scope},
    storage,
};

/// One page.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The objects.
    pub items: Vec<Arc<Object>>,
    /// `metadata.resourceVersion`.
    pub revision: u64,
    /// `metadata.continue`.
    pub continue_token: Option<String>,
    /// `metadata.remainingItemCount`.
    pub remaining: Option<usize>,
}

/// GET on a collection.
pub async fn list(work: &Work<'_>) -> Result<Answer> {
    let options = ListOptions::list(&work.context.call)?;
    let filter = filter(work)?;
    page(work, &options, filter).await.map(Answer::List)
}

/// What the request selects, as the cache applies it.
pub fn filter(work: &Work<'_>) -> Result<Filter> {
    let kind = work.route.kind;
    let query = &work.context.call.query;
    let known = selectable(kind);
    let fields = Fields { known: &known, is_built_in: kind.is_built_in() };
    let selector = Selector::parse(query.get("labelSelector"), query.get("fieldSelector"), fields)?;
    let base = Filter { name: work.route.name.map(str::to_owned), ..Filter::of(work.route.namespace) };
    if selector.is_empty() {
        return Ok(base);
    }
    // One name is a look-up, not a scan.
    let name = base.name.clone().or_else(|| selector.name().map(str::to_owned));
    let marks = marks(&selector);
    Ok(Filter { name, ..base }.needing(marks).selecting(move |object| matches(&selector, object)))
}

/// What a field selector may name. Custom resources without a namespace do not know the field.
fn selectable(kind: &Kind) -> Vec<&'static str> {
    let has_namespace = kind.is_built_in() || kind.scope == Scope::Namespaced;
    let namespace = has_namespace.then_some("metadata.namespace");
    ["metadata.name"].into_iter().chain(namespace).chain(kind.selectable.iter().copied()).collect()
}

fn marks(selector: &Selector) -> Marks {
    selector.needed().fold(Marks::default(), |marks, (key, value)| match value {
        Some(value) => marks.with_key(key).with_pair(key, value),
        None => marks.with_key(key),
    })
}

fn matches(selector: &Selector, object: &Object) -> bool {
    let header = object.header();
    selector.matches(
        |key| header.labels.get(key),
        |path| match path {
            "metadata.name" => Some(object.key().name()),
            "metadata.namespace" => object.key().namespace(),
            other => header.fields.get(other),
        },
    )
}

/// Reads one page.
pub async fn page(work: &Work<'_>, options: &ListOptions, filter: Filter) -> Result<Listing> {
    let kind = work.route.kind;
    let token = options.continue_token.as_deref().map(Token::decode).transpose()?;
    let at = revision(work, options, token.as_ref()).await?;
    let after = token.as_ref().map(|token| token.key(kind, work.route.namespace)).transpose()?;
    let query = Query {
        filter,
        at,
        // Whatever is at hand is given whole: that is how Kubernetes' own cache answers version 0.
        limit: options.limit.filter(|_| options.version != Some(0)),
        after,
        served: token.as_ref().map_or(0, |token| token.served),
    };
    let served = query.served;
    let listed = match work.storage.resource(kind)?.list(&query) {
        Ok(listed) => listed,
        Err(cache::Error::Expired { .. }) => return Err(expired(token)),
        Err(other) => return Err(storage::unavailable(other)),
    };
    let sent = served.saturating_add(listed.items.len());
    let next = listed.next.map(|last| Token::after(&last, work.route.namespace, listed.revision.0, sent).encode());
    Ok(Listing { items: listed.items, revision: listed.revision.0, continue_token: next, remaining: listed.remaining })
}

/// Waits until the asked freshness is there; answers the exact revision to read at, if one is asked for.
async fn revision(work: &Work<'_>, options: &ListOptions, token: Option<&Token>) -> Result<Option<Revision>> {
    if let Some(token) = token {
        work.storage.fresh().await?;
        return Ok(token.revision());
    }
    match (options.version, options.version_match) {
        (None, _) => {
            work.storage.fresh().await?;
            Ok(None)
        }
        (Some(0), _) => Ok(None),
        (Some(version), Some(Match::Exact)) => {
            work.storage.wait_for(version).await?;
            Ok(Some(Revision(version)))
        }
        // What Kubernetes has always done: a limit makes a bare version an exact one.
        (Some(version), None) if options.limit.is_some() => {
            work.storage.wait_for(version).await?;
            Ok(Some(Revision(version)))
        }
        (Some(version), None | Some(Match::NotOlderThan)) => {
            work.storage.wait_for(version).await?;
            Ok(None)
        }
    }
}

fn expired(token: Option<Token>) -> Error {
    match token {
        Some(token) => Error::Expired {
            message: "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                      without the continue parameter, or use the continue token in this response to retrieve the remainder of \
                      the results. Continuing with the provided token results in an inconsistent list - objects that were \
                      created, modified, or deleted between the time the first chunk was returned and now may show up in the \
                      list."
                .to_owned(),
            continue_token: Some(token.inconsistent().encode()),
        },
        None => Error::Expired {
            message: "The resourceVersion for the provided list is too old.".to_owned(),
            continue_token: None,
        },
    }
}
