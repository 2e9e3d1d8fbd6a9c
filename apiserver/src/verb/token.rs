//! The `continue` token of lists: where the next page begins and in which snapshot. Opaque to clients, and laid out as in
//! Kubernetes, whose refusals it shares. Pure.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use store::{Key, Revision};

use crate::{
    error::{Error, Result},
    registry::Kind,
};

/// Longest token that is read: two names and three numbers fit many times.
const TOKEN_MAX: usize = 4096;
/// The one layout there is.
const LAYOUT: &str = "meta.k8s.io/v1";
/// In place of a revision: whatever is newest, after the snapshot was lost.
const NEWEST: i64 = -1;

/// Where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Layout of this token.
    #[serde(default)]
    v: String,
    /// Revision of the snapshot, or [`NEWEST`].
    #[serde(default)]
    rv: i64,
    /// The first key of the next page: the last one sent and a zero byte, below the path that is listed.
    #[serde(default)]
    start: String,
    /// How many objects earlier pages held.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub served: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Token {
    /// The token behind a page that ended with `last`, of the objects of `namespace` or of all.
    #[must_use]
    pub fn after(last: &Key, namespace: Option<&str>, revision: u64, served: usize) -> Self {
        let start = match (namespace, last.namespace()) {
            (None, Some(of_last)) => format!("{of_last}/{}\0", last.name()),
            (Some(_), _) | (None, None) => format!("{}\0", last.name()),
        };
        let rv = i64::try_from(revision).unwrap_or(i64::MAX);
        Self { v: LAYOUT.to_owned(), rv, start, served }
    }

    /// The same place, in whatever snapshot is newest.
    #[must_use]
    pub fn inconsistent(self) -> Self {
        Self { rv: NEWEST, ..self }
    }

    /// The snapshot; `None`: whatever is newest.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        u64::try_from(self.rv).ok().map(Revision)
    }

    /// As sent.
    #[must_use]
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// As received.
    pub fn decode(text: &str) -> Result<Self> {
        if text.len() > TOKEN_MAX {
            return Err(bad("it is too long"));
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|error| bad(&format!("illegal base64 data at input byte {}", first_odd(text, &error))))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| bad(&error.to_string()))?;
        if token.v != LAYOUT {
            return Err(bad(&format!("server does not recognize this encoded version {}", token.v)));
        }
        if token.rv == 0 {
            return Err(bad(&format!("incorrect encoded start resourceVersion (version {LAYOUT})")));
        }
        match token.start.as_str() {
            "" => Err(bad(&format!("encoded start key empty (version {LAYOUT})"))),
            odd if !is_clean(odd) => Err(bad(odd)),
            _ => Ok(token),
        }
    }

    /// The key after which the page begins.
    pub fn key(&self, kind: &Kind, namespace: Option<&str>) -> Result<Key> {
        let start = self.start.strip_prefix('/').unwrap_or(&self.start);
        let start = start.strip_suffix('\0').unwrap_or(start);
        let (namespace, name) = match (namespace, start.split_once('/')) {
            (None, Some((namespace, name))) => (Some(namespace), name),
            (namespace, _) => (namespace, start),
        };
        Key::new(&kind.store_resource(), namespace, name).map_err(|_no_key| bad(&self.start))
    }
}

fn bad(why: &str) -> Error {
    Error::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
}

/// Where Go's decoder stops.
const fn first_odd(text: &str, error: &base64::DecodeError) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
    }
}

/// No way out of what is listed: neither empty nor relative parts.
fn is_clean(start: &str) -> bool {
    let start = start.strip_prefix('/').unwrap_or(start);
    start.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_comes_back_as_it_went() {
        let key = Key::new("pods", Some("a"), "b.c").unwrap();
        for namespace in [Some("a"), None] {
            let token = Token::after(&key, namespace, 7, 500);
            assert_eq!(Token::decode(&token.encode()), Ok(token.clone()));
            assert_eq!((token.revision(), token.clone().inconsistent().revision()), (Some(Revision(7)), None));
            let registry = crate::registry::host::registry().unwrap();
            let pods = registry.find("", "v1", "pods").unwrap();
            assert_eq!(token.key(pods, namespace), Ok(key.clone()));
        }
    }

    #[test]
    fn a_token_that_is_none_is_refused_in_the_words_of_kubernetes() {
        let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for (token, why) in [
            ("!".to_owned(), "illegal base64 data at input byte 0"),
            ("abcdx".to_owned(), "illegal base64 data at input byte 4"),
            (encoded("{}"), "server does not recognize this encoded version "),
            (encoded(r#"{"v":"v2","rv":1,"start":"a"}"#), "server does not recognize this encoded version v2"),
            (
                encoded(r#"{"v":"meta.k8s.io/v1","start":"a"}"#),
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (encoded(r#"{"v":"meta.k8s.io/v1","rv":1}"#), "encoded start key empty (version meta.k8s.io/v1)"),
            (encoded(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/../x"}"#), "/../x"),
        ] {
            assert_eq!(Token::decode(&token), Err(bad(why)), "{token}");
        }
    }

    proptest! {
        #[test]
        fn anything_else_is_a_bad_request(text in ".{0,80}") {
            prop_assert!(matches!(Token::decode(&text), Err(Error::BadRequest(_))));
        }
    }
}
