//! Who asks. Today: the verified client certificate, nothing else; nobody is anonymous.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;

use super::Peer;
use crate::error::{Error, Qualified, Result};
use crate::request::User;

/// Group of everybody who is known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group that may do everything.
pub const MASTERS: &str = "system:masters";
/// Headers with which a proxy says who asks; honoured from no one yet, so they must reach no one.
const PROXY_PREFIX: &str = "x-remote-";
/// Headers with which a client asks to act as somebody else.
const IMPERSONATE_PREFIX: &str = "impersonate-";

/// The user behind a request. The certificate is the connection's, and must still be valid: connections last long; what the headers claim is ignored, save for
/// impersonation: that is refused, because ignoring it would act with more rights than the client asked for.
pub(super) fn authenticate(peer: &Peer, headers: &HeaderMap, now: Timestamp) -> Result<User> {
    let identity = peer.identity.as_ref().ok_or(Error::Unauthorized)?;
    if peer.good_until.is_none_or(|end| end < now.as_second()) {
        return Err(Error::Unauthorized);
    }
    let mut groups = identity.organizations.clone();
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let user = User { name: identity.common_name.clone(), groups, ..User::default() };
    match headers.keys().find(|name| name.as_str().starts_with(IMPERSONATE_PREFIX)) {
        None => Ok(user),
        Some(_) => Err(impersonation_refused(&user, headers)),
    }
}

/// Removes what says who somebody is, so that nothing behind this can believe it or log it.
pub(super) fn strip(headers: &mut HeaderMap) {
    let spoofable: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with(PROXY_PREFIX)).cloned().collect();
    for name in spoofable {
        headers.remove(name);
    }
    headers.remove(AUTHORIZATION);
}

fn impersonation_refused(user: &User, headers: &HeaderMap) -> Error {
    let target = headers.get("impersonate-user").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let message = format!(
        "users {target:?} is forbidden: User {:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
        user.name
    );
    Error::Forbidden { resource: Qualified::new("", "users"), name: target.to_owned(), message, causes: Vec::new() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use certs::Identity;
    use http::HeaderValue;

    use super::*;

    fn peer(identity: Option<(&str, &[&str])>) -> Peer {
        let identity = identity.map(|(name, groups)| Identity {
            common_name: name.to_owned(),
            organizations: groups.iter().map(|group| (*group).to_owned()).collect(),
        });
        Peer { address: ([127, 83, 0, 1], 1).into(), identity, good_until: Some(100) }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_certificate_that_expired_on_an_open_connection_counts_no_more() {
        let jane = peer(Some(("jane", &[])));
        assert!(authenticate(&jane, &HeaderMap::new(), at(100)).is_ok());
        assert_eq!(authenticate(&jane, &HeaderMap::new(), at(101)), Err(Error::Unauthorized));
    }

    #[test]
    fn the_certificate_says_who_asks_and_everybody_known_is_authenticated() {
        let user = authenticate(&peer(Some(("kun:admin", &[MASTERS]))), &HeaderMap::new(), at(0)).unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups),
            ("kun:admin", vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()])
        );
        let user = authenticate(&peer(Some(("x", &[AUTHENTICATED]))), &HeaderMap::new(), at(0)).unwrap();
        assert_eq!(user.groups, [AUTHENTICATED]);
    }

    #[test]
    fn headers_never_make_somebody_of_nobody() {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("kun:admin"));
        headers.insert("x-remote-group", HeaderValue::from_static(MASTERS));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer token"));
        assert_eq!(authenticate(&peer(None), &headers, at(0)), Err(Error::Unauthorized));
        strip(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn impersonation_is_refused_instead_of_ignored() {
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-user", HeaderValue::from_static("jane"));
        let refused = authenticate(&peer(Some(("kun:admin", &[MASTERS]))), &headers, at(0)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "users \"jane\" is forbidden: User \"kun:admin\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
        );
    }
}
