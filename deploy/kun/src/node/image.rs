//! Which images the node can stand in for, pure: it runs a redis-server of this machine and says so when an image asks
//! for another one.

use std::path::PathBuf;

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

/// A redis-server of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Its path.
    pub program: PathBuf,
    /// Its version.
    pub version: Version,
}

impl Local {
    /// A PATH on which it comes first.
    #[must_use]
    pub fn path(&self, others: &str) -> String {
        match self.program.parent() {
            Some(folder) => format!("{}:{others}", folder.display()),
            None => others.to_owned(),
        }
    }
}

/// The local redis-server that stands in for an image, the first that fits; the error is the message of `ErrImagePull`.
pub fn chosen<'a>(image: &str, local: &'a [Local]) -> Result<&'a Local, String> {
    let shown: String = image.chars().filter(|c| !c.is_control()).take(200).collect();
    let reference = Reference::parse(image).map_err(|error| format!("image {shown:?} {error}"))?;
    let versions: Vec<String> = local.iter().map(|redis| redis.version.to_string()).collect();
    let hints: Vec<String> = versions.iter().map(|version| format!("redis:{version}")).collect();
    let (versions, hints) = (versions.join(" and "), hints.join(" or "));
    match reference.repository.rsplit('/').next() {
        // Our own image: its programs are this executable.
        Some("kun") => local.first().ok_or_else(|| "this node has no redis-server".to_owned()),
        Some("redis") => {
            let fits = |redis: &&Local| reference.version().is_some_and(|wanted| wanted.covers(redis.version));
            local.iter().find(fits).ok_or_else(|| format!(
                "image {shown:?} is not the local redis-server, which is {versions}: ask for {hints} or a prefix of it, or start kun with --redis-server pointing at the version wanted"
            ))
        }
        Some(_) | None => Err(format!(
            "image {shown:?}: the standalone node runs local programs and stands in only for images named redis (it has redis-server {versions}) and kun"
        )),
    }
}

/// Two programs of one version: an image could not choose between them.
#[must_use]
pub fn of_one_version(local: &[Local]) -> Option<[&Local; 2]> {
    let pairs = local.iter().enumerate().flat_map(|(at, one)| local.iter().skip(at + 1).map(move |other| [one, other]));
    pairs.into_iter().find(|[one, other]| one.version == other.version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn local() -> Vec<Local> {
        let banner = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=d";
        vec![Local { program: "/usr/bin/redis-server".into(), version: version_of_banner(banner).unwrap() }]
    }

    fn two() -> Vec<Local> {
        let other = Local { program: "/opt/eight/redis-server".into(), version: "8.0.2".parse().unwrap() };
        local().into_iter().chain([other]).collect()
    }

    #[test]
    fn of_several_versions_the_image_chooses_one() {
        for (image, folder) in [("redis:7", "/usr/bin"), ("redis:8.0", "/opt/eight"), ("kun:0.1", "/usr/bin")] {
            let path = chosen(image, &two()).unwrap().path("/bin");
            assert_eq!(path, format!("{folder}:/bin"), "{image}");
        }
        let message = chosen("redis:8.2", &two()).unwrap_err();
        assert!(message.contains("7.0.15 and 8.0.2"), "{message}");
        assert!(message.contains("ask for redis:7.0.15 or redis:8.0.2 or a prefix of it, or start"), "{message}");
        assert!(chosen("redis:7", &[]).is_err());
    }

    #[test]
    fn two_programs_of_one_version_are_found() {
        assert_eq!(of_one_version(&two()), None);
        let again = Local { program: "/opt/seven/redis-server".into(), ..local().remove(0) };
        let three: Vec<Local> = two().into_iter().chain([again]).collect();
        assert_eq!(of_one_version(&three), Some([&three[0], &three[2]]));
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
            assert_eq!(chosen(good, &local()), Ok(&local()[0]), "{good}");
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
            assert!(chosen(bad, &local()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_message_names_what_there_is_and_what_to_do() {
        let message = chosen("docker.io/library/redis:8.0", &local()).unwrap_err();
        assert!(
            message.contains("7.0.15") && message.contains("--redis-server") && message.contains("redis:8.0"),
            "{message}"
        );
        assert!(!chosen("redis:7\nx", &local()).unwrap_err().contains('\n'));
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
