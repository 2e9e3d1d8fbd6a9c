//! Acting as somebody else: the headers `Impersonate-*` into a user, and the rights that takes.
//!
//! A request that asks for it and may not is refused, never served with the rights of who sent it.

use http::{HeaderMap, HeaderName};

use super::authn::proxy_extra;
use super::authn::{AUTHENTICATED, UNAUTHENTICATED};
use super::authz::{Attributes, Authorizer, Target, refused};
use crate::error::{Error, Result};
use crate::request::{ResourcePath, User};

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA: &str = "impersonate-extra-";
const PREFIX: &str = "impersonate-";
/// API group of user ids and attributes.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// The user that stands for nobody.
const ANONYMOUS: &str = "system:anonymous";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Most groups and attributes of one request: each is a question to the authorizer.
const CLAIMS_MAX: usize = 64;

/// Whom the request wants to act as; `None` if it does not ask for it.
///
/// # Errors
/// When the headers make no sense, or it may not.
pub(super) async fn impersonated(
    authorizer: &dyn Authorizer,
    user: &User,
    headers: &HeaderMap,
) -> Result<Option<User>> {
    let Some(claimed) = claimed(headers)? else { return Ok(None) };
    for asked in rights(&claimed) {
        if let Some(refusal) = refused(authorizer, user, &asked).await? {
            return Err(refusal);
        }
    }
    Ok(Some(completed(claimed)))
}

/// Removes the headers: behind this filter there is one user.
pub(super) fn strip(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).cloned().collect();
    names.into_iter().for_each(|name| drop(headers.remove(name)));
}

/// What the headers say, before anything is added to it.
fn claimed(headers: &HeaderMap) -> Result<Option<User>> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    let text = |name: &HeaderName| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok()).map(str::to_owned).collect()
    };
    let mut user = User {
        name: text(&USER).into_iter().next().unwrap_or_default(),
        uid: text(&UID).into_iter().next().unwrap_or_default(),
        groups: text(&GROUP),
        ..User::default()
    };
    let prefix = [EXTRA.to_owned()];
    for name in headers.keys() {
        if let Some(key) = proxy_extra(name, &prefix) {
            user.extra.entry(key).or_default().extend(text(name));
        }
    }
    let claims = user.groups.len() + user.extra.values().map(Vec::len).sum::<usize>();
    if claims > CLAIMS_MAX {
        return Err(Error::bad_request(format!(
            "impersonating {claims} groups and attributes: the most is {CLAIMS_MAX}"
        )));
    }
    if user.name.is_empty() {
        // As Kubernetes: what is said about nobody is a mistake, not a request by oneself.
        let said = [&user.groups[..], &[user.uid]].concat();
        return Err(Error::internal(format!("requested {said:?} without impersonating a user name")));
    }
    Ok(Some(user))
}

/// The rights it takes, one question each.
fn rights(claimed: &User) -> Vec<Attributes> {
    let of = |group: &str, resource: &str, subresource: Option<&str>, namespace: Option<&str>, name: &str| {
        let path = ResourcePath {
            group: group.to_owned(),
            version: if group.is_empty() { String::new() } else { "v1".to_owned() },
            resource: resource.to_owned(),
            subresource: subresource.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            selected_name: None,
        };
        Attributes::new("impersonate", Target::Resource(path))
    };
    let mut rights = vec![match account(&claimed.name) {
        Some((namespace, name)) => of("", "serviceaccounts", None, Some(namespace), name),
        None => of("", "users", None, None, &claimed.name),
    }];
    rights.extend(claimed.groups.iter().map(|group| of("", "groups", None, None, group)));
    for (key, values) in &claimed.extra {
        rights.extend(values.iter().map(|value| of(AUTHENTICATION, "userextras", Some(key), None, value)));
    }
    if !claimed.uid.is_empty() {
        rights.push(of(AUTHENTICATION, "uids", None, None, &claimed.uid));
    }
    rights
}

/// Namespace and name of a service account.
fn account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// The groups that somebody has without being told: a service account those of its namespace (unless groups are named),
/// everybody the one of those who are known, nobody the one of those who are not.
fn completed(mut user: User) -> User {
    if user.groups.is_empty()
        && let Some((namespace, _)) = account(&user.name)
    {
        user.groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    }
    let own = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !user.is_in(AUTHENTICATED) && !user.is_in(UNAUTHENTICATED) {
        user.groups.push(own.to_owned());
    }
    user
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::future::BoxFuture;
    use http::HeaderValue;

    use super::super::authz::Decision;
    use super::*;

    /// Allows what is in its list of `resource/name`.
    struct Allows(Vec<&'static str>);

    impl Authorizer for Allows {
        fn authorize<'a>(&'a self, _: &'a User, asked: &'a Attributes) -> BoxFuture<'a, Result<Decision>> {
            let decision = match &asked.target {
                Target::Resource(path) => {
                    let parts =
                        [Some(&path.resource), path.subresource.as_ref(), path.namespace.as_ref(), path.name.as_ref()];
                    let text = parts.into_iter().flatten().cloned().collect::<Vec<_>>().join("/");
                    if self.0.contains(&text.as_str()) {
                        Decision::Allow(String::new())
                    } else {
                        Decision::NoOpinion(String::new())
                    }
                }
                Target::Path(_) => Decision::NoOpinion(String::new()),
            };
            Box::pin(async move { Ok(decision) })
        }
    }

    async fn run(allowed: &[&'static str], lines: &[(&'static str, &'static str)]) -> Result<Option<User>> {
        let map = lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let ops = User { name: "ops".to_owned(), ..User::default() };
        impersonated(&Allows(allowed.to_vec()), &ops, &map.collect()).await
    }

    fn named(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        User { name: name.to_owned(), groups, ..User::default() }
    }

    #[tokio::test]
    async fn every_name_group_uid_and_attribute_takes_a_right_of_its_own() {
        let lines = [
            ("impersonate-user", "jane"),
            ("impersonate-group", "a"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-example.org%2fscopes", "read"),
        ];
        let all = ["users/jane", "groups/a", "uids/7", "userextras/example.org/scopes/read"];
        let mut jane = named("jane", &["a", AUTHENTICATED]);
        jane.uid = "7".to_owned();
        jane.extra = [("example.org/scopes".to_owned(), vec!["read".to_owned()])].into();
        assert_eq!(run(&all, &lines).await, Ok(Some(jane)));
        for missing in 0..all.len() {
            let some: Vec<_> =
                all.iter().enumerate().filter(|(index, _)| *index != missing).map(|(_, right)| *right).collect();
            assert!(matches!(run(&some, &lines).await, Err(Error::Forbidden { .. })), "without {}", all[missing]);
        }
        let refused = run(&all[..1], &lines).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "groups \"a\" is forbidden: User \"ops\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope"
        );
    }

    #[tokio::test]
    async fn nobody_asks_for_it_and_nothing_happens() {
        assert_eq!(run(&[], &[("accept", "x")]).await, Ok(None));
    }

    #[tokio::test]
    async fn groups_without_a_user_are_a_mistake_and_not_a_request_by_oneself() {
        assert!(run(&["groups/a"], &[("impersonate-group", "a")]).await.is_err());
        assert!(run(&[], &[("impersonate-whatever", "a")]).await.is_err());
    }

    #[tokio::test]
    async fn service_accounts_and_nobody_get_the_groups_they_always_have() {
        let robot = "system:serviceaccount:ci:robot";
        let expected = named(robot, &["system:serviceaccounts", "system:serviceaccounts:ci", AUTHENTICATED]);
        assert_eq!(run(&["serviceaccounts/ci/robot"], &[("impersonate-user", robot)]).await, Ok(Some(expected)));
        let expected = named(ANONYMOUS, &[UNAUTHENTICATED]);
        assert_eq!(run(&["users/system:anonymous"], &[("impersonate-user", ANONYMOUS)]).await, Ok(Some(expected)));
    }
}
