//! Which images the node can stand in for, pure: it runs the machine's own redis-server and says so when an image asks
//! for another one.

use types::engine::Engine;
use types::image::Reference;
use types::version::Version;

/// Reads the answer of `redis-server --version`: `Redis server v=7.0.15 sha=…`. Valkey under this name is not Redis.
#[must_use]
pub fn version_of_banner(banner: &str) -> Option<Version> {
    match Engine::of_banner(banner)? {
        (Engine::Redis, version) => version.parse().ok(),
        (Engine::Valkey, _) => None,
    }
}

/// Checks an image against the local redis-server; the error is the message of `ErrImagePull`.
pub fn check(image: &str, local: Version) -> Result<(), String> {
    let shown: String = image.chars().filter(|c| !c.is_control()).take(200).collect();
    let reference = Reference::parse(image).map_err(|error| format!("image {shown:?} {error}"))?;
    match reference.repository.rsplit('/').next() {
        // Our own image: its programs are this executable.
        Some("kun") => Ok(()),
        Some("redis") if reference.version().is_some_and(|wanted| wanted.covers(local)) => Ok(()),
        Some("redis") => Err(format!(
            "image {shown:?} is not the local redis-server, which is {local}: ask for {local} or a prefix of it (redis:{local}), or start kun with --redis-server pointing at the version wanted"
        )),
        Some(_) | None => Err(format!(
            "image {shown:?}: the standalone node runs local programs and stands in only for images named redis (it has redis-server {local}) and kun"
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn local() -> Version {
        version_of_banner("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=d").unwrap()
    }

    #[test]
    fn a_tag_is_a_prefix_by_components() {
        let digest = format!("redis:7@sha256:{}", "a".repeat(64));
        for good in [
            "redis:7",
            "redis:7.0",
            "redis:7.0.15",
            "docker.io/library/redis:7.0",
            "reg.example:5000/redis:7.0-alpine",
            &digest,
            "kun:0.1",
        ] {
            assert_eq!(check(good, local()), Ok(()), "{good}");
        }
        for bad in [
            "redis",
            "redis:latest",
            "redis:7.0.1",
            "redis:7.1",
            "redis:8",
            "redis:7.0.15.1",
            "redis:7.",
            "redis:",
            "valkey:7",
            "redis:7\n.0",
            "",
            "../redis:7",
        ] {
            assert!(check(bad, local()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_message_names_what_there_is_and_what_to_do() {
        let message = check("docker.io/library/redis:8.0", local()).unwrap_err();
        assert!(
            message.contains("7.0.15") && message.contains("--redis-server") && message.contains("redis:8.0"),
            "{message}"
        );
        assert!(!check("redis:7\nx", local()).unwrap_err().contains('\n'));
    }

    #[test]
    fn a_banner_that_is_not_one_is_refused() {
        for banner in [
            "",
            "redis-server",
            "v=7.0.15",
            "Redis server v=",
            "Redis server v=7.0.15-rc1",
            "Redis server v=a.b",
            "Valkey server v=8.1.1",
        ] {
            assert_eq!(version_of_banner(banner), None, "{banner:?}");
        }
    }
}
