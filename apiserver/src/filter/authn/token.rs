//! Bearer tokens: somebody else knows whom they stand for, and is asked at most once in ten seconds.
//!
//! A token itself is never kept: what is remembered is known by its hash.

use std::sync::Arc;

use aws_lc_rs::digest;
use futures::future::BoxFuture;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::time::Instant;

use crate::error::Result;
use crate::filter::remember::Remembered;
use crate::request::User;

/// Knows whom a token stands for.
pub trait Reviewer: Send + Sync {
    /// The user; `None` if the token is none, or has ended.
    ///
    /// # Errors
    /// When it cannot be found out: that is no refusal, and not remembered.
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>>>;
}

/// A reviewer with a memory.
pub(super) struct Tokens {
    reviewer: Arc<dyn Reviewer>,
    known: Remembered<[u8; 32], Option<User>>,
}

impl Tokens {
    pub(super) fn new(reviewer: Arc<dyn Reviewer>) -> Self {
        Self { reviewer, known: Remembered::default() }
    }

    pub(super) async fn user(&self, token: &str) -> Result<Option<User>> {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
        if let Some(known) = self.known.get(&hash, Instant::now()) {
            return Ok(known);
        }
        let user = self.reviewer.review(token).await?;
        self.known.learn(hash, user.clone(), Instant::now());
        Ok(user)
    }
}

/// The token of a request (RFC 6750 §2.1); the scheme in any case, as RFC 9110 §11.1 wants it.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::HeaderValue;

    use super::*;
    use crate::error::Error;

    /// Knows the token `jane`, is out of order for `broken`, and counts.
    #[derive(Default)]
    struct Desk(AtomicUsize);

    impl Reviewer for Desk {
        fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                match token {
                    "broken" => Err(Error::internal("nobody answers")),
                    "jane" => Ok(Some(User { name: "jane".to_owned(), ..User::default() })),
                    _ => Ok(None),
                }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_remembered_for_ten_seconds_and_a_failure_is_not() {
        let desk = Arc::new(Desk::default());
        let tokens = Tokens::new(Arc::clone(&desk) as Arc<dyn Reviewer>);
        for _ in 0..3 {
            assert_eq!(tokens.user("jane").await.unwrap().unwrap().name, "jane");
            assert_eq!(tokens.user("nobody").await, Ok(None));
        }
        assert_eq!(desk.0.load(Ordering::Relaxed), 2);
        tokio::time::advance(crate::filter::remember::LIFE).await;
        assert!(tokens.user("jane").await.unwrap().is_some());
        assert_eq!(desk.0.load(Ordering::Relaxed), 3);
        assert!(tokens.user("broken").await.is_err());
        assert!(tokens.user("broken").await.is_err());
        assert_eq!(desk.0.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn only_a_bearer_header_with_a_token_holds_one() {
        let token = |value: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc"), Some("abc".to_owned()));
        assert_eq!(token("bearer  abc "), Some("abc".to_owned()));
        assert_eq!([token("Basic abc"), token("Bearer"), token("Bearer "), token("abc")], [const { None }; 4]);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
