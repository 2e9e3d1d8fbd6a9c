//! Headers that every answer carries.

use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, USER_AGENT, WARNING};
use http::{HeaderMap, Response};

use crate::request::Warnings;

/// Identifies a request in audit and logs.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Longest part of a client's name that is kept.
const USER_AGENT_MAX: usize = 256;

/// Adds audit id, cache control (unless set) and warnings.
pub(super) fn finish<B>(response: &mut Response<B>, audit_id: &str, warnings: &Warnings) {
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(audit_id) {
        headers.insert(AUDIT_ID, value);
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    }
    for text in warnings.bounded() {
        if let Ok(value) = HeaderValue::from_str(&warning(&text)) {
            headers.append(WARNING, value);
        }
    }
}

/// `299 - "text"`: quotes and backslashes escaped, control characters left out, anything past ASCII as it is.
fn warning(text: &str) -> String {
    let mut value = String::with_capacity(text.len() + 8);
    value.push_str("299 - \"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                value.push('\\');
                value.push(character);
            }
            '\n' | '\r' | '\t' => value.push(' '),
            control if control.is_control() => {}
            other => value.push(other),
        }
    }
    value.push('"');
    value
}

/// The client's name for itself; the default field manager is taken from it.
pub(super) fn user_agent(headers: &HeaderMap) -> String {
    let text = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.chars().take(USER_AGENT_MAX).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn a_warning_cannot_break_out_of_its_header() {
        assert_eq!(warning("say \"no\"\r\nSet-Cookie: x\\"), "299 - \"say \\\"no\\\"  Set-Cookie: x\\\\\"");
    }

    #[test]
    fn an_answer_says_its_audit_id_and_that_it_must_not_be_cached_unless_it_says_otherwise() {
        let warnings = Warnings::default();
        warnings.add("unknown field \"spec.ü\"");
        let mut response = Response::new(());
        finish(&mut response, "abc", &warnings);
        assert_eq!(response.headers()[AUDIT_ID], "abc");
        assert_eq!(response.headers()[CACHE_CONTROL], "no-cache, private");
        assert_eq!(response.headers()[WARNING].as_bytes(), "299 - \"unknown field \\\"spec.ü\\\"\"".as_bytes());
        let mut response = Response::new(());
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        finish(&mut response, "abc", &Warnings::default());
        assert_eq!(response.headers()[CACHE_CONTROL], "public");
        assert!(!response.headers().contains_key(WARNING));
    }
}
