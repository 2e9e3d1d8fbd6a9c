//! Values → bytes → responses: JSON or YAML, indented for people, compressed when large.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_ENCODING, VARY},
};
use serde_json::Value;

use super::{
    body::{self, ResponseBody},
    negotiate::{Format, Negotiated},
};
use crate::error::{Error, Result};

/// Bodies up to this size are not worth compressing (Kubernetes' threshold).
pub const GZIP_MIN: usize = 128 * 1024;

/// A value in the negotiated form.
pub fn value(value: &Value, form: Negotiated) -> Result<Bytes> {
    match form.format {
        Format::Json => json(value, form.pretty),
        Format::Yaml => yaml(value),
    }
}

fn json(value: &Value, pretty: bool) -> Result<Bytes> {
    let encoded = if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
    encoded.map(Bytes::from).map_err(|error| Error::internal(format!("encoding JSON: {error}")))
}

fn yaml(value: &Value) -> Result<Bytes> {
    let text = serde_saphyr::to_string(value).map_err(|error| Error::internal(format!("encoding YAML: {error}")))?;
    Ok(Bytes::from(text))
}

/// Bytes that are JSON already, in the negotiated form; untouched if that is what is wanted.
pub fn encoded_json(bytes: Bytes, form: Negotiated) -> Result<Bytes> {
    if form.format == Format::Json && !form.pretty {
        return Ok(bytes);
    }
    let parsed = serde_json::from_slice(&bytes)
        .map_err(|error| Error::internal(format!("decoding a stored object: {error}")))?;
    value(&parsed, form)
}

/// A response with these bytes, compressed if that pays and the client can read it.
pub fn respond(code: StatusCode, bytes: Bytes, form: Negotiated, accepts_gzip: bool) -> Response<ResponseBody> {
    let media_type = form.format.media_type();
    if !accepts_gzip || bytes.len() <= GZIP_MIN {
        return body::respond(code, media_type, body::full(bytes));
    }
    match gzip(&bytes) {
        Ok(packed) => {
            let mut response = body::respond(code, media_type, body::full(packed));
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            response
        }
        // Writing into memory does not fail; if it ever did, the plain bytes are as good.
        Err(_) => body::respond(code, media_type, body::full(bytes)),
    }
}

/// Speed over size: the link is fast, the CPU is shared with requests.
fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// True if an Accept-Encoding header allows gzip.
#[must_use]
pub fn accepts_gzip(header: Option<&str>) -> bool {
    let clauses = header.unwrap_or_default().split(',').map(str::trim);
    clauses.into_iter().any(|clause| {
        let (name, parameters) = clause.split_once(';').unwrap_or((clause, ""));
        name.trim() == "gzip" && parameters.replace(' ', "") != "q=0"
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::wire::negotiate::View;
    use serde_json::json;

    fn form(format: Format, pretty: bool) -> Negotiated {
        Negotiated { format, view: View::Object, pretty }
    }

    #[test]
    fn stored_bytes_pass_untouched_unless_another_form_is_wanted() {
        let stored = Bytes::from_static(br#"{"a":1}"#);
        assert_eq!(encoded_json(stored.clone(), form(Format::Json, false)).unwrap(), stored);
        assert_eq!(encoded_json(stored.clone(), form(Format::Json, true)).unwrap(), "{\n  \"a\": 1\n}");
        assert_eq!(encoded_json(stored, form(Format::Yaml, false)).unwrap(), "a: 1\n");
    }

    #[test]
    fn yaml_keeps_texts_that_look_like_something_else() {
        let object =
            json!({"a": "yes", "b": "1", "c": "null", "d": "x: y", "e": [], "f": {}, "g": "l1\nl2\n", "h": "0x1"});
        let text = value(&object, form(Format::Yaml, false)).unwrap();
        let back: Value = serde_saphyr::from_str(std::str::from_utf8(&text).unwrap()).unwrap();
        assert_eq!(back, object);
    }

    #[test]
    fn only_large_bodies_are_compressed_and_only_for_those_who_can_read_them() {
        let large = Bytes::from(vec![b'x'; GZIP_MIN + 1]);
        let of = |gzip| respond(StatusCode::OK, large.clone(), form(Format::Json, false), gzip);
        assert_eq!(of(true).headers()[CONTENT_ENCODING], "gzip");
        assert!(!of(false).headers().contains_key(CONTENT_ENCODING));
        let small = respond(StatusCode::OK, Bytes::from_static(b"{}"), form(Format::Json, false), true);
        assert!(!small.headers().contains_key(CONTENT_ENCODING));
        assert!(accepts_gzip(Some("br, gzip;q=0.5")) && !accepts_gzip(Some("gzip;q=0")) && !accepts_gzip(None));
    }
}
