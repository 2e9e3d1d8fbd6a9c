//! Bodies → values: read within limits, JSON or YAML, with what was found odd told apart from what is wrong.

use bytes::Bytes;
use http::{HeaderMap, header::CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError};
use serde_json::Value;

use super::body::RequestBody;
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
    /// Paths of keys that occur twice; the last value won.
    pub duplicates: Vec<String>,
}

/// Decodes a body by its media type; none means JSON. `fault` words what is wrong with the text itself.
pub fn decode(bytes: &[u8], content_type: &str, fault: &dyn Fn(&str) -> Error) -> Result<Decoded> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Error::bad_request("the body of the request is empty"));
    }
    match content_type {
        "" | "application/json" => json(bytes, fault),
        "application/yaml" => yaml(bytes, fault),
        _ => Err(Error::UnsupportedMediaType(OBJECT_TYPES.to_vec())),
    }
}

/// Decodes JSON within the limits of bodies.
pub fn json(bytes: &[u8], fault: &dyn Fn(&str) -> Error) -> Result<Decoded> {
    match merge::decode(bytes, merge::Limits::default()) {
        Ok(decoded) => Ok(Decoded { value: decoded.value, duplicates: decoded.duplicates }),
        Err(merge::DecodeError::TooLarge { .. }) => Err(too_large()),
        Err(error @ (merge::DecodeError::TooDeep(_) | merge::DecodeError::TooManyValues(_))) => {
            Err(Error::TooLarge(format!("Request entity too large: {error}")))
        }
        Err(merge::DecodeError::Malformed(text)) => Err(fault(&text)),
    }
}

/// YAML is read into a value (the reader bounds depth and alias expansion), then passes through JSON's own limits.
fn yaml(bytes: &[u8], fault: &dyn Fn(&str) -> Error) -> Result<Decoded> {
    let text = std::str::from_utf8(bytes).map_err(|error| fault(&error.to_string()))?;
    let value: Value = serde_saphyr::from_str(text).map_err(|error| fault(&first_line(&error.to_string())))?;
    let encoded = serde_json::to_vec(&value).map_err(|error| fault(&error.to_string()))?;
    json(&encoded, fault)
}

/// Messages of the YAML reader carry a drawing of the place; the first line says it.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
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
        assert_eq!(decoded(" \n", ""), Err(Error::bad_request("the body of the request is empty")));
        for text in ["{", "{}x", "{\"a\":1,}", "\u{0}"] {
            assert!(matches!(decoded(text, ""), Err(Error::BadRequest(_))), "{text}");
        }
        for text in ["a: [", "a: b: c", "a: 1\na: 2", "--- a\n--- b"] {
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
