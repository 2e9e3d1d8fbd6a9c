//! Whether the author of a request has the rights that it needs: one SubjectAccessReview for each.
//!
//! It must not know why a right is needed; [`crate::decide::reach`] does.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};

use crate::{decide::reach::Right, review::Author};

/// Longest wait for an answer. What an object names is asked about at the same time, and who asks us waits five seconds, of
/// which our own lists may take one. A client that is told to try again does.
const PATIENCE: Duration = Duration::from_millis(3000);

/// The rights of authors, as the API knows them.
#[derive(Clone)]
pub struct Rights(Api<SubjectAccessReview>);

/// Why it is not known whether somebody has a right.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Kubernetes refused to say.
    #[error("asking for a SubjectAccessReview")]
    Ask(#[from] kube::Error),
    /// It said nothing.
    #[error("no SubjectAccessReview within {0:?}")]
    Deadline(Duration),
}

impl Rights {
    /// Asked with a client that may create SubjectAccessReviews.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(Api::all(client))
    }

    /// Whether an author has a right.
    ///
    /// # Errors
    /// When that could not be learned.
    pub async fn has(&self, author: &Author, right: &Right) -> Result<bool, Error> {
        let (parameters, review) = (PostParams::default(), review(author, right));
        let asked = self.0.create(&parameters, &review);
        let told = tokio::time::timeout(PATIENCE, asked).await.map_err(|_| Error::Deadline(PATIENCE))??;
        Ok(told.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

fn review(author: &Author, right: &Right) -> SubjectAccessReview {
    let Author { username, uid, groups, extra } = author.clone();
    let attributes = ResourceAttributes {
        verb: Some(right.verb.to_owned()),
        group: Some(right.group.to_owned()).filter(|group| !group.is_empty()),
        version: Some("v1".to_owned()),
        resource: Some(right.resource.to_owned()),
        subresource: right.subresource.map(str::to_owned),
        name: right.name.clone(),
        namespace: right.namespace.clone(),
        ..ResourceAttributes::default()
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(username),
            uid: Some(uid),
            groups: Some(groups),
            extra: Some(extra),
            resource_attributes: Some(attributes),
            non_resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    }
}
