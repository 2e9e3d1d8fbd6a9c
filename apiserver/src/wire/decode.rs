//! Bodies → values: read within limits, JSON or YAML, with what was found odd told apart from what is wrong.

use bytes::Bytes;
use http::{HeaderMap, header::CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError};
use serde_json::Value;

use super::{body::RequestBody, yaml};
use crate::error::{Error, Result};

/// Largest body (Kubernetes' limit).
pub const BODY_MAX: usize = 3 * 1024 * 1024;

/// Media types of objects.
const OBJECT_TYPES: [&str; 2] = ["application/json", "application/yaml"];

/// Reads a whole body, up to the limit.
pub async fn read(mut body: RequestBody) -> Result<Bytes> {
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unread(error.as_ref()))?;
        // Trailers say nothing that is read here.
        let Ok(piece) = frame.into_data() else { continue };
        size += piece.len();
        if size > BODY_MAX {
            return Err(too_large());
        }
        pieces.push(piece);
    }
    match pieces.len() {
        1 => Ok(pieces.pop().unwrap_or_default()),
        _ => Ok(pieces.concat().into()),
    }
}

/// The edge caps bodies, too; whoever notices first, the answer is the same.
fn unread(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Error {
    if error.is::<LengthLimitError>() { too_large() } else { Error::bad_request(format!("reading the body: {error}")) }
}

/// A body that is larger than is read.
#[must_use]
pub fn too_large() -> Error {
    Error::TooLarge(format!("Request entity too large: limit is {BODY_MAX}"))
}

/// The media type of the body without its parameters; empty if none is given.
#[must_use]
pub fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// What a body holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The value.
    pub value: Value,
    /// What was found twice; the last value won.
    pub twice: Twice,
}

/// Keys that occur twice, in the order of the text, in the words of the text's reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Twice {
    told: Vec<String>,
    is_yaml: bool,
}

impl Twice {
    /// Each for itself, as warnings tell them.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.told.clone()
    }

    /// As a refusal tells them: those of YAML in one piece.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        if self.is_yaml && !self.told.is_empty() {
            return vec![format!("yaml: unmarshal errors:\n  {}", self.told.join("\n  "))];
        }
        self.told.clone()
    }

    /// The same, told of something that is called `what`.
    #[must_use]
    pub fn of(mut self, what: &str) -> Self {
        self.told.iter_mut().for_each(|told| *told = format!("{what} {told}"));
        self
    }
}

/// Decodes a body by its media type; none means JSON. `fault` words what is wrong with the text itself.
pub fn decode(bytes: &[u8], content_type: &str, fault: &dyn Fn(&str) -> Error) -> Result<Decoded> {
    match content_type {
        "" | "application/json" => json(bytes, fault),
        "application/yaml" => of_yaml(bytes, fault),
        _ => Err(Error::UnsupportedMediaType(OBJECT_TYPES.to_vec())),
    }
}

/// Decodes JSON within the limits of bodies.
pub fn json(bytes: &[u8], fault: &dyn Fn(&str) -> Error) -> Result<Decoded> {
    match merge::decode(bytes, merge::Limits::default()) {
        Ok(decoded) => {
            let told = decoded.duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect();
            Ok(Decoded { value: decoded.value, twice: Twice { told, is_yaml: false } })
        }
        Err(merge::DecodeError::TooLarge { .. }) => Err(too_large()),
        Err(error @ (merge::DecodeError::TooDeep(_) | merge::DecodeError::TooManyValues(_))) => {
            Err(Error::TooLarge(format!("Request entity too large: {error}")))
        }
        Err(merge::DecodeError::Malformed(text)) => Err(fault(&text)),
    }
}

/// YAML is read into a value (the reader bounds depth and alias expansion), then passes through JSON's own limits.
fn of_yaml(bytes: &[u8], fault: &dyn Fn(&str) -> Error) -> Result<Decoded> {
    let text = std::str::from_utf8(bytes).map_err(|error| fault(&error.to_string()))?;
    let read = yaml::read(text).map_err(|why| fault(&why))?;
    let encoded = serde_json::to_vec(&read.value).map_err(|error| fault(&error.to_string()))?;
    let value = json(&encoded, fault)?.value;
    Ok(Decoded { value, twice: Twice { told: read.repeated, is_yaml: true } })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn decoded(text: &str, of: &str) -> Result<Value> {
        decode(text.as_bytes(), of, &|why| Error::bad_request(format!("bad: {why}"))).map(|decoded| decoded.value)
    }

    #[test]
    fn a_body_is_json_unless_it_says_yaml() {
        let expected = json!({"a": {"b": [1, "x", null, true]}});
        assert_eq!(decoded(r#"{"a":{"b":[1,"x",null,true]}}"#, ""), Ok(expected.clone()));
        assert_eq!(decoded("a:\n  b: [1, x, null, true]\n", "application/yaml"), Ok(expected));
        assert_eq!(
            decoded("{}", "application/vnd.kubernetes.protobuf"),
            Err(Error::UnsupportedMediaType(OBJECT_TYPES.to_vec()))
        );
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for text in ["", " \n", "{", "{}x", "{\"a\":1,}", "\u{0}"] {
            assert!(matches!(decoded(text, ""), Err(Error::BadRequest(_))), "{text}");
        }
        for text in ["a: [", "a: b: c"] {
            assert!(matches!(decoded(text, "application/yaml"), Err(Error::BadRequest(_))), "{text}");
        }
        assert!(matches!(decoded(&"[".repeat(10_000), ""), Err(Error::TooLarge(_) | Error::BadRequest(_))));
    }

    #[test]
    fn aliases_cannot_grow_a_small_body_into_a_large_one() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let previous = level - 1;
            let items = vec![format!("*a{previous}"); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(decoded(&bomb, "application/yaml").is_err());
    }
}
