//! Who asks. In this order, and the first that knows counts: a proxy that says so, a client certificate, a bearer token.
//! Nobody is anonymous.
//!
//! What a certificate means is judged by the trust of the day, not by that of the connection's beginning: connections
//! last long, and authorities change.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use certs::{Anchors, Identity, Shown};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::{SignedDuration, Timestamp};

use super::Peer;
use crate::error::{Error, Result};
use crate::request::User;

mod proxy;
pub mod token;
pub mod trust;

pub(super) use proxy::extra_key as proxy_extra;
use token::{Reviewer, Tokens};
use trust::{Names, Trust};

/// Group of everybody who is known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of everybody who is not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group that may do everything.
pub const MASTERS: &str = "system:masters";
/// Attribute that says by which credential a user is known.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// How long a verdict on a chain counts: certificates between the client's and the authority end, too.
const VERDICT_LIFE: SignedDuration = SignedDuration::from_secs(60);

/// Finds out who asks.
pub struct Authenticator {
    trust: ArcSwap<Trust>,
    tokens: Option<Tokens>,
}

impl Authenticator {
    /// Believes whom `trust` says, and, if there is a reviewer, bearer tokens.
    #[must_use]
    pub fn new(trust: Trust, reviewer: Option<Arc<dyn Reviewer>>) -> Self {
        Self { trust: ArcSwap::from_pointee(trust), tokens: reviewer.map(Tokens::new) }
    }

    /// Believes only certificates of these authorities.
    #[must_use]
    pub fn of_clients(clients: Anchors) -> Arc<Self> {
        Arc::new(Self::new(Trust::of_clients(clients), None))
    }

    /// Believes somebody else from the next request on, also on connections that are open.
    pub fn believe(&self, trust: Trust) {
        self.trust.store(Arc::new(trust));
    }

    /// The user behind a request.
    ///
    /// # Errors
    /// 401 if nobody is known; otherwise when it cannot be found out.
    pub async fn authenticate(&self, peer: &Peer, headers: &HeaderMap, now: Timestamp) -> Result<User> {
        let trust = self.trust.load_full();
        let standing = peer.standing(&trust, now);
        let told = trust.proxy.as_ref().filter(|_| standing.is_proxy);
        let told = told.and_then(|proxy| proxy::user(headers, &proxy.headers));
        let user = match (told.or(standing.client), &self.tokens, token::bearer(headers)) {
            (Some(user), _, _) => user,
            (None, Some(tokens), Some(token)) => tokens.user(token).await?.ok_or(Error::Unauthorized)?,
            (None, _, _) => return Err(Error::Unauthorized),
        };
        Ok(known(user))
    }

    /// Removes what says who somebody is, so that nothing behind this can believe it or log it.
    pub fn strip(&self, headers: &mut HeaderMap) {
        proxy::strip(headers, self.trust.load().proxy.as_ref().map(|proxy| &proxy.headers));
        headers.remove(AUTHORIZATION);
    }
}

/// Everybody who is known is in a group of its own.
fn known(mut user: User) -> User {
    if !user.is_in(AUTHENTICATED) && !user.is_in(UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// What the certificate of a connection means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Standing {
    /// It may say who asks.
    is_proxy: bool,
    /// Whom it is for.
    client: Option<User>,
}

impl Standing {
    fn of(shown: &Shown, trust: &Trust, now: Timestamp) -> Self {
        let is_named = |names: &Names, identity: &Identity| match names {
            Names::Any => true,
            Names::Only(names) => names.contains(&identity.common_name),
        };
        let proxy = trust.proxy.as_ref();
        let is_proxy = proxy.is_some_and(|proxy| {
            proxy.anchors.verify(shown, now).is_ok_and(|identity| is_named(&proxy.names, identity))
        });
        let client = trust.clients.as_ref().and_then(|clients| clients.verify(shown, now).ok());
        Self { is_proxy, client: client.map(|identity| user(identity, shown)) }
    }
}

fn user(identity: &Identity, shown: &Shown) -> User {
    let credential = (CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={}", shown.fingerprint())]);
    User {
        name: identity.common_name.clone(),
        uid: identity.uid.clone(),
        groups: identity.organizations.clone(),
        extra: [credential].into(),
    }
}

/// The last verdict on a connection's certificate: looking at a chain costs more than most requests.
#[derive(Debug, Default)]
pub struct Verdict(Mutex<Option<Given>>);

#[derive(Debug)]
struct Given {
    by: Arc<Trust>,
    until: Timestamp,
    standing: Standing,
}

impl Peer {
    fn standing(&self, trust: &Arc<Trust>, now: Timestamp) -> Standing {
        let Some(shown) = &self.shown else { return Standing::default() };
        let mut last = self.verdict.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(given) = last.as_ref().filter(|given| Arc::ptr_eq(&given.by, trust) && now <= given.until) {
            return given.standing.clone();
        }
        let standing = Standing::of(shown, trust, now);
        let until = now.checked_add(VERDICT_LIFE).unwrap_or(now).min(shown.not_after());
        *last = Some(Given { by: Arc::clone(trust), until, standing: standing.clone() });
        standing
    }
}

#[cfg(test)]
mod tests;
