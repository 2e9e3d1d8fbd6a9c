//! The `continue` token of lists: where the next page begins and in which snapshot. Opaque to clients. Pure.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use store::Key;

use crate::{
    error::{Error, Result},
    registry::Kind,
};

/// Longest token that is read: two names and three numbers fit many times.
const TOKEN_MAX: usize = 4096;

/// Where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Layout of this token.
    v: u8,
    /// Revision of the snapshot; absent: whatever is newest, after the snapshot was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rv: Option<u64>,
    /// Namespace of the last object sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns: Option<String>,
    /// Name of the last object sent.
    pub name: String,
    /// How many objects earlier pages held.
    pub served: usize,
}

impl Token {
    /// The token behind a page that ended with `last`.
    #[must_use]
    pub fn after(last: &Key, revision: u64, served: usize) -> Self {
        Self { v: 1, rv: Some(revision), ns: last.namespace().map(str::to_owned), name: last.name().to_owned(), served }
    }

    /// The same place, in whatever snapshot is newest.
    #[must_use]
    pub fn inconsistent(self) -> Self {
        Self { rv: None, ..self }
    }

    /// As sent.
    #[must_use]
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// As received.
    pub fn decode(text: &str) -> Result<Self> {
        let bad = || {
            Error::bad_request("invalid continue token: continue key is not valid: illegal base64 data at input byte 0")
        };
        if text.len() > TOKEN_MAX {
            return Err(bad());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_not_base64| bad())?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_not_ours| bad())?;
        if token.v == 1 { Ok(token) } else { Err(bad()) }
    }

    /// The key after which the page begins.
    pub fn key(&self, kind: &Kind) -> Result<Key> {
        Key::new(&kind.store_resource(), self.ns.as_deref(), &self.name)
            .map_err(|_no_key| Error::bad_request("continue key is not valid: it names no object"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_comes_back_as_it_went() {
        let key = Key::new("pods", Some("a"), "b.c").unwrap();
        let token = Token::after(&key, 7, 500);
        assert_eq!(Token::decode(&token.encode()), Ok(token.clone()));
        assert_eq!(token.inconsistent().rv, None);
    }

    proptest! {
        #[test]
        fn anything_else_is_a_bad_request(text in ".{0,80}") {
            prop_assert!(matches!(Token::decode(&text), Err(Error::BadRequest(_))));
        }
    }
}
