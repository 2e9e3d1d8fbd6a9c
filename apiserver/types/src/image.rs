//! Container images: the catalogue from versions to images, and reading a reference.
//!
//! Only the spelling is known here; whether an image exists is for the node that pulls it.

use crate::{engine::Engine, version::Version};

/// Longest reference that is accepted; registries allow names of 255 characters, a tag 128, a digest 71.
const REFERENCE_MAX: usize = 512;
/// Longest tag, as in the distribution specification.
const TAG_MAX: usize = 128;

/// The image of the catalogue for a version of an engine: the official one.
#[must_use]
pub fn of_version(engine: Engine, version: &str) -> String {
    let repository = match engine {
        Engine::Redis => "docker.io/library/redis",
        Engine::Valkey => "docker.io/valkey/valkey",
    };
    format!("{repository}:{version}")
}

/// An image reference taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    /// Registry host and repository, as written.
    pub repository: &'a str,
    /// What follows the colon.
    pub tag: Option<&'a str>,
    /// `sha256:…`.
    pub digest: Option<&'a str>,
}

/// Why a text is not an image reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not of the form `[host[:port]/]path[:tag][@digest]`.
    #[error("must be an image reference such as \"docker.io/library/redis:7.0\"")]
    Malformed,
    /// Longer than any reference.
    #[error("must have at most 512 characters")]
    TooLong,
}

impl<'a> Reference<'a> {
    /// Takes a reference apart.
    ///
    /// # Errors
    /// `Malformed` or `TooLong`.
    pub fn parse(text: &'a str) -> Result<Self, Error> {
        if text.len() > REFERENCE_MAX {
            return Err(Error::TooLong);
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let last_segment = name.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match name.rfind(':') {
            Some(colon) if colon >= last_segment => (name.get(..colon).unwrap_or(""), name.get(colon + 1..)),
            Some(_) | None => (name, None),
        };
        let fine = is_repository(repository) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
        if fine { Ok(Self { repository, tag, digest }) } else { Err(Error::Malformed) }
    }

    /// The version its tag tells, if the tag begins with one: "7.0.15-alpine" is 7.0.15, "latest" tells none.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        let tag = self.tag?;
        tag.split('-').next().unwrap_or(tag).parse().ok()
    }
}

fn is_repository(text: &str) -> bool {
    let mut segments = text.split('/');
    let Some(first) = segments.next() else { return false };
    let rest: Vec<&str> = segments.collect();
    // Only a first segment of several may be a host, and only a host may carry a port.
    let first_is_fine = is_segment(first) || (!rest.is_empty() && is_host(first));
    first_is_fine && rest.iter().all(|segment| is_segment(segment))
}

fn is_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
    };
    host.split('.').all(label) && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|number| number > 0))
}

fn is_segment(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-');
    edge(text.bytes().next()) && edge(text.bytes().last()) && text.bytes().all(inner)
}

fn is_tag(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= TAG_MAX
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(text: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    text.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64 && digits.bytes().all(hex))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_reference_is_taken_apart() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let full = format!("registry.example.com:5000/team/redis:7.0.15-alpine@{digest}");
        let parsed = Reference::parse(&full).unwrap();
        let expected = Reference {
            repository: "registry.example.com:5000/team/redis",
            tag: Some("7.0.15-alpine"),
            digest: Some(digest.as_str()),
        };
        assert_eq!(parsed, expected);
        assert_eq!(parsed.version(), Some("7.0.15".parse().unwrap()));
        assert_eq!(Reference::parse("redis").unwrap(), Reference { repository: "redis", tag: None, digest: None });
        assert_eq!(Reference::parse("redis:latest").unwrap().version(), None);
    }

    #[test]
    fn what_is_not_a_reference_is_refused() {
        for text in [
            "",
            ":7",
            "redis:",
            "Redis:7",
            "a b",
            "redis:7\n",
            "redis@sha256:12",
            "host:99999/redis",
            "a//b",
            "redis;rm",
            "../redis",
            "redis:5000/x:y:z",
        ] {
            assert_eq!(Reference::parse(text), Err(Error::Malformed), "{text:?}");
        }
        assert_eq!(Reference::parse(&"a".repeat(600)), Err(Error::TooLong));
    }

    #[test]
    fn the_catalogue_gives_an_image_whose_tag_is_the_version() {
        for (engine, image) in
            [(Engine::Redis, "docker.io/library/redis:7.0"), (Engine::Valkey, "docker.io/valkey/valkey:7.0")]
        {
            assert_eq!(of_version(engine, "7.0"), image);
            assert_eq!(Reference::parse(image).unwrap().version(), Some("7.0".parse().unwrap()));
        }
    }
}
