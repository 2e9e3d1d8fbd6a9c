//! The engines: what is different between Redis and Valkey, in one place.
//!
//! It knows names and numbers; how a server is spoken to is for the controller and the agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What serves the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Engine {
    /// Redis.
    #[default]
    Redis,
    /// Valkey, which went its own way after Redis 7.2.
    Valkey,
}

impl Engine {
    /// The versions KUN can run: the agent's rendering and the controller's commands are written for these. Valkey 7.2 does
    /// not know `REPLCONF version`, which backups need; 9.2 has a format of files that is not known here.
    #[must_use]
    pub const fn supported(self) -> &'static str {
        match self {
            Self::Redis => ">=7.0, <9",
            Self::Valkey => ">=8.0, <9.2",
        }
    }

    /// The version of a cluster that names none.
    #[must_use]
    pub const fn default_version(self) -> &'static str {
        match self {
            Self::Redis => "7.0",
            Self::Valkey => "8.1",
        }
    }

    /// What a server's answer to `--version` says: `Redis server v=7.0.15 sha=…`, or `Valkey server v=8.1.1 sha=…`. Its version as
    /// it is written there.
    #[must_use]
    pub fn of_banner(banner: &str) -> Option<(Self, &str)> {
        let (engine, words) = match (banner.strip_prefix("Redis server "), banner.strip_prefix("Valkey server ")) {
            (Some(words), _) => (Self::Redis, words),
            (None, Some(words)) => (Self::Valkey, words),
            (None, None) => return None,
        };
        Some((engine, words.split_whitespace().find_map(|word| word.strip_prefix("v="))?))
    }

    /// The server's program, as official images have it on the PATH.
    #[must_use]
    pub const fn server(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use crate::version::{Range, Version};

    fn supports(engine: Engine, version: &str) -> bool {
        engine.supported().parse::<Range>().unwrap().contains(version.parse::<Version>().unwrap())
    }

    #[test]
    fn each_engine_has_versions_of_its_own_among_them_its_default() {
        for (engine, version, supported) in [
            (Engine::Redis, "6.2", false),
            (Engine::Redis, "7", true),
            (Engine::Redis, "8.2.1", true),
            (Engine::Redis, "9", false),
            (Engine::Valkey, "7.2", false),
            (Engine::Valkey, "8", true),
            (Engine::Valkey, "8.1.1", true),
            (Engine::Valkey, "9", true),
            (Engine::Valkey, "9.1.2", true),
            (Engine::Valkey, "9.2", false),
        ] {
            assert_eq!(supports(engine, version), supported, "{engine:?} {version}");
        }
        for engine in [Engine::Redis, Engine::Valkey] {
            assert!(supports(engine, engine.default_version()));
        }
    }
}
