//! Who a proxy says is asking: headers into a user; pure. Whether the proxy may say so was decided before.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};

use super::trust::Headers;
use crate::request::User;

/// Names of headers that may never reach what lies behind the filters, whatever the cluster calls its own.
const PREFIX: &str = "x-remote-";

/// The user named in the headers; `None` if none is.
pub(super) fn user(headers: &HeaderMap, named: &Headers) -> Option<User> {
    let name = first(headers, &named.user)?;
    Some(User {
        name,
        uid: first(headers, &named.uid).unwrap_or_default(),
        groups: named.group.iter().flat_map(|header| texts(headers, header)).collect(),
        extra: extra(headers, &named.extra),
    })
}

/// Takes away every header in which somebody could be named.
pub(super) fn strip(headers: &mut HeaderMap, named: Option<&Headers>) {
    let is_named = |header: &HeaderName| {
        named.is_some_and(|named| {
            let exact = named.user.iter().chain(&named.uid).chain(&named.group);
            exact.into_iter().any(|name| name == header) || extra_key(header, &named.extra).is_some()
        })
    };
    let spoofable: Vec<HeaderName> =
        headers.keys().filter(|header| header.as_str().starts_with(PREFIX) || is_named(header)).cloned().collect();
    spoofable.into_iter().for_each(|header| drop(headers.remove(header)));
}

fn first(headers: &HeaderMap, names: &[HeaderName]) -> Option<String> {
    names.iter().flat_map(|name| texts(headers, name)).find(|text| !text.is_empty())
}

/// Values that are no text name nobody.
fn texts<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> + use<'a> {
    headers.get_all(name).iter().filter_map(|value| std::str::from_utf8(value.as_bytes()).ok()).map(str::to_owned)
}

fn extra(headers: &HeaderMap, prefixes: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for header in headers.keys() {
        if let Some(key) = extra_key(header, prefixes) {
            found.entry(key).or_default().extend(texts(headers, header));
        }
    }
    found
}

/// The key is percent-encoded, because it may hold what no header's name can; one that cannot be decoded is taken as it is.
pub(in crate::filter) fn extra_key(header: &HeaderName, prefixes: &[String]) -> Option<String> {
    let rest = prefixes.iter().find_map(|prefix| header.as_str().strip_prefix(prefix.as_str()))?;
    Some(crate::route::decode(rest, false).map_or_else(|| rest.to_owned(), std::borrow::Cow::into_owned))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn named() -> Headers {
        let name = HeaderName::from_static;
        Headers {
            user: vec![name("x-proxy-user"), name("x-remote-user")],
            uid: vec![name("x-remote-uid")],
            group: vec![name("x-remote-group")],
            extra: vec!["x-remote-extra-".to_owned()],
        }
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn the_headers_of_a_proxy_name_user_uid_groups_and_attributes() {
        let headers = headers(&[
            ("x-proxy-user", ""),
            ("x-remote-user", "jane"),
            ("x-remote-uid", "42"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.org%2fscopes", "read"),
            ("x-remote-extra-example.org%2fscopes", "write"),
            ("x-remote-extra-100%", "odd"),
        ]);
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let expected = User {
            name: "jane".to_owned(),
            uid: "42".to_owned(),
            groups: list(&["a", "b"]),
            extra: BTreeMap::from([
                ("100%".to_owned(), list(&["odd"])),
                ("example.org/scopes".to_owned(), list(&["read", "write"])),
            ]),
        };
        assert_eq!(user(&headers, &named()), Some(expected));
    }

    #[test]
    fn without_a_name_nobody_is_named() {
        let headers = headers(&[("x-remote-user", ""), ("x-remote-group", "system:masters")]);
        assert_eq!(user(&headers, &named()), None);
    }

    #[test]
    fn a_uid_header_that_the_cluster_does_not_announce_is_not_read() {
        let named = Headers { uid: Vec::new(), ..named() };
        let user = user(&headers(&[("x-remote-user", "jane"), ("x-remote-uid", "0")]), &named);
        assert_eq!(user.map(|user| user.uid), Some(String::new()));
    }

    #[test]
    fn every_header_that_could_name_somebody_is_taken_away() {
        let lines =
            [("x-proxy-user", "a"), ("x-remote-group", "b"), ("x-remote-anything", "c"), ("x-audit-id", "stays")];
        let mut map = headers(&lines);
        strip(&mut map, Some(&named()));
        assert_eq!(map, headers(&[("x-audit-id", "stays")]));
        let mut map = headers(&lines);
        strip(&mut map, None);
        assert_eq!(map, headers(&[("x-proxy-user", "a"), ("x-audit-id", "stays")]));
    }
}
