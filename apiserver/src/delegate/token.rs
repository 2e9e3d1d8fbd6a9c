//! TokenReview: whom a bearer token stands for.

use futures::future::BoxFuture;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask;
use crate::error::{Error, Result};
use crate::filter::authn::token::Reviewer;
use crate::request::User;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Asks the kube-apiserver.
pub struct TokenReviews(Client);

impl TokenReviews {
    /// Asks through `client`.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self(client)
    }
}

impl Reviewer for TokenReviews {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>>> {
        Box::pin(async move {
            let question =
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
            user(&ask(&self.0, PATH, &question).await?)
        })
    }
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: Told,
}

#[derive(Default, Deserialize)]
struct Told {
    #[serde(default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

/// The user of an answer; nobody without a name.
fn user(answer: &Value) -> Result<Option<User>> {
    let status = answer.get("status").cloned().unwrap_or_default();
    let Status { authenticated, user } =
        Status::deserialize(status).map_err(|error| Error::internal(format!("reading a TokenReview: {error}")))?;
    let Told { username: name, uid, groups, extra } = user;
    Ok((authenticated && !name.is_empty()).then_some(User { name, uid, groups, extra }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_authenticated_user_with_a_name_is_somebody() {
        let told = json!({"username": "jane", "uid": "7", "groups": ["team"], "extra": {"scopes": ["a", "b"]}});
        let jane = User {
            name: "jane".to_owned(),
            uid: "7".to_owned(),
            groups: vec!["team".to_owned()],
            extra: [("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into(),
        };
        assert_eq!(user(&json!({"status": {"authenticated": true, "user": told}})), Ok(Some(jane)));
        assert_eq!(user(&json!({"status": {"authenticated": false, "user": told}})), Ok(None));
        assert_eq!(user(&json!({"status": {"user": told}})), Ok(None));
        assert_eq!(user(&json!({"status": {"authenticated": true, "user": {}}})), Ok(None));
        assert!(user(&json!({})).is_err());
        assert!(user(&json!({"status": {"authenticated": "yes"}})).is_err());
    }
}
