//! Patterns of every string that ends up in names, labels, paths, argv, redis.conf or ACL files.

/// Said of a name that is not a DNS label.
pub(super) const LABEL: &str = "must begin with a lower case letter, end with a letter or digit, and hold only lower case letters, digits and '-' (RFC 1035)";
/// Said of a name that is not a DNS subdomain.
pub(super) const SUBDOMAIN: &str = "must hold only lower case letters, digits, '-' and '.', and each part must begin and end with a letter or digit (RFC 1123)";
/// Said of a path.
pub(super) const PATH: &str =
    "must be an absolute path of letters, digits, '_', '-', '.' and '/', without empty parts, '.' and '..'";

/// RFC 1035 label of at most `most` characters: begins with a letter, because a Service takes the name.
#[must_use]
pub fn is_label(text: &str, most: usize) -> bool {
    text.len() <= most && text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase()) && is_part(text)
}

/// RFC 1123 subdomain.
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= super::NAME_MAX && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().all(|byte| word(byte) || byte == b'-')
        && text.bytes().next().is_some_and(word)
        && text.bytes().last().is_some_and(word)
}

/// An absolute path that means the same to everyone who reads it.
pub(super) fn is_plain_path(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let part = |part: &str| !part.is_empty() && part != "." && part != ".." && part.bytes().all(plain);
    text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(part))
}

/// A label key: `[prefix/]name`.
pub(super) fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_qualified(name),
        None => is_qualified(text),
    }
}

/// A label value: empty, or as the name of a key.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified(text)
}

fn is_qualified(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric();
    text.len() <= 63
        && text.bytes().all(|byte| word(byte) || matches!(byte, b'-' | b'_' | b'.'))
        && text.bytes().next().is_some_and(word)
        && text.bytes().last().is_some_and(word)
}
