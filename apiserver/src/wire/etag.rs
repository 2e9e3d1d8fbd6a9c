//! Tags of content: a client that has the same content is told so in 304 and no body.

use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, VARY},
};

use super::{
    body::{self, ResponseBody},
    discovery::Document,
};

/// The quoted SHA-512 of some bytes, in hex.
#[must_use]
pub fn of(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA512, bytes);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    format!("\"{hex}\"")
}

/// True if the client has this content already.
#[must_use]
pub fn matches(headers: &HeaderMap, etag: &str) -> bool {
    let sent = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    sent.flat_map(|value| value.split(',')).any(|tag| {
        let tag = tag.trim().trim_start_matches("W/");
        tag == etag || tag == "*"
    })
}

/// The document, or 304 if the client has it.
#[must_use]
pub fn respond(document: &Document, content_type: &'static str, headers: &HeaderMap) -> Response<ResponseBody> {
    let mut response = if matches(headers, &document.etag) {
        let mut response = Response::new(body::full(""));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        body::respond(StatusCode::OK, content_type, body::full(document.bytes.clone()))
    };
    let map = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&document.etag) {
        map.insert(ETAG, value);
    }
    map.insert(VARY, HeaderValue::from_static("Accept"));
    map.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}
