//! Where the agent's inputs come from: environment, agent.json, password files. Every error says which.
//!
//! It must not know Redis. Passwords live in [`Secret`], which never prints itself.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
};

use resp::Credentials;
use types::{agent::AgentConfig, names::USER_AGENT};

use crate::replication;

/// Kubernetes' own grace period.
const GRACE_DEFAULT: u64 = 30;
/// Largest agent.json; a real one has a few KB.
const CONFIG_MAX: u64 = 1 << 20;

/// What is wrong with an input.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable is absent.
    #[error("read the environment: {0} is not set")]
    Unset(&'static str),
    /// A variable does not parse.
    #[error("read the environment: {name}={value:?} is not {wanted}")]
    Variable {
        /// Which.
        name: &'static str,
        /// What it holds; none of ours holds a secret.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// A file cannot be read.
    #[error("read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is longer than any legal one.
    #[error("read {path}: {bytes} bytes are more than the {limit} allowed")]
    TooLong {
        /// Which.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The bound.
        limit: u64,
    },
    /// agent.json is not an AgentConfig.
    #[error("parse {path}: {source}")]
    Json {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A password file holds what cannot be a password.
    #[error("read the password in {path}: it {why}")]
    Password {
        /// Which.
        path: PathBuf,
        /// What is wrong, without the content.
        why: &'static str,
    },
}

/// A password. Its `Debug` shows stars.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A password that nobody can guess.
    ///
    /// # Panics
    /// When the kernel gives no random bytes; nothing can be kept secret then.
    #[must_use]
    #[allow(clippy::expect_used, reason = "there is nothing that could be done instead")]
    pub fn random() -> Self {
        let mut bytes = [0_u8; 32];
        aws_lc_rs::rand::fill(&mut bytes).expect("random bytes");
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The password itself; only for what goes to Redis or into a 0600 file.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What the environment says; fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of this pod.
    pub pod_name: String,
    /// Its namespace.
    pub pod_namespace: String,
    /// Its address, at which Redis and the agent listen.
    pub pod_ip: IpAddr,
    /// Shard index, as text.
    pub shard: String,
    /// The container's memory limit in bytes, if it has one.
    pub memory_limit: Option<u64>,
    /// Seconds between the signal to stop and the kubelet's SIGKILL (`terminationGracePeriodSeconds`).
    pub grace_seconds: u64,
    /// Redis' working directory.
    pub data_dir: PathBuf,
    /// For rendered files and records; in memory.
    pub run_dir: PathBuf,
    /// Holds agent.json.
    pub config_dir: PathBuf,
    /// Holds the application's password.
    pub auth_dir: PathBuf,
    /// Holds internal passwords and the agent's certificate.
    pub internal_dir: PathBuf,
    /// Program to start, looked up on PATH.
    pub redis_server: PathBuf,
}

impl Options {
    /// Reads the environment through `get`.
    ///
    /// # Errors
    /// Names the variable that is absent or does not parse.
    pub fn from_env(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let need = |name: &'static str| get(name).filter(|value| !value.is_empty()).ok_or(Error::Unset(name));
        let ip = need("POD_IP")?;
        let pod_ip = ip.parse().map_err(|_| Error::Variable { name: "POD_IP", value: ip, wanted: "an IP address" })?;
        let number = |name: &'static str, wanted: &'static str| {
            let value = get(name).filter(|value| !value.is_empty());
            value.map(|value| value.parse::<u64>().map_err(|_| Error::Variable { name, value, wanted })).transpose()
        };
        // Kubernetes writes 0 when the container has no limit and the node's size is unknown.
        let memory_limit = number("KUN_MEMORY_LIMIT", "a number of bytes")?.filter(|bytes| *bytes > 0);
        Ok(Self {
            pod_name: need("POD_NAME")?,
            pod_namespace: need("POD_NAMESPACE")?,
            pod_ip,
            shard: get("KUN_SHARD").unwrap_or_default(),
            memory_limit,
            grace_seconds: number("KUN_GRACE_SECONDS", "a number of seconds")?.unwrap_or(GRACE_DEFAULT),
            data_dir: need("KUN_DATA_DIR")?.into(),
            run_dir: need("KUN_RUN_DIR")?.into(),
            config_dir: need("KUN_CONFIG_DIR")?.into(),
            auth_dir: need("KUN_AUTH_DIR")?.into(),
            internal_dir: need("KUN_INTERNAL_DIR")?.into(),
            redis_server: get("KUN_REDIS_SERVER").unwrap_or_else(|| "redis-server".to_owned()).into(),
        })
    }
}

/// The passwords of all users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passwords {
    /// Of the application.
    pub application: Secret,
    /// Of the controller.
    pub operator: Secret,
    /// Of the agents.
    pub agent: Secret,
    /// Of replication in this shard.
    pub replica: Secret,
    /// Of replication in all shards, which members of earlier releases use.
    pub replica_of_all: Secret,
}

/// Everything that may change while the agent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// agent.json.
    pub config: AgentConfig,
    /// The passwords.
    pub passwords: Passwords,
}

impl Inputs {
    /// Reads agent.json and the password files. They are small; this blocks.
    ///
    /// # Errors
    /// Names the file.
    pub fn read(options: &Options) -> Result<Self, Error> {
        let path = options.config_dir.join("agent.json");
        let text = bounded(&path, CONFIG_MAX)?;
        let config = serde_json::from_slice(&text).map_err(|source| Error::Json { path, source })?;
        let replica_of_all = password(&options.internal_dir.join("replica"))?;
        Ok(Self {
            config,
            passwords: Passwords {
                application: password(&options.auth_dir.join("password"))?,
                operator: password(&options.internal_dir.join("operator"))?,
                agent: password(&options.internal_dir.join("agent"))?,
                replica: replication::of_shard(&replica_of_all, &options.shard),
                replica_of_all,
            },
        })
    }

    /// How the agent logs in to any member.
    #[must_use]
    pub fn agent_credentials(&self) -> Credentials {
        Credentials::new(USER_AGENT, self.passwords.agent.expose())
    }
}

fn bounded(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > limit {
        return Err(Error::TooLong { path: path.to_owned(), bytes, limit });
    }
    std::fs::read(path).map_err(failed)
}

fn password(path: &Path) -> Result<Secret, Error> {
    let bytes = bounded(path, CONFIG_MAX)?;
    let text = types::password::of_file(&bytes);
    text.map(Secret::new).map_err(|why| Error::Password { path: path.to_owned(), why })
}

/// A configuration with everything at its default, for the tests of several modules.
#[cfg(test)]
pub(crate) mod fixture {
    use std::collections::BTreeMap;

    use types::agent::AgentConfig;
    use types::cluster::{AppendOnly, EvictionPolicy, Mode};

    pub(crate) fn config() -> AgentConfig {
        AgentConfig {
            namespace: "default".into(),
            cluster: "orders".into(),
            mode: Mode::Cluster,
            node_timeout_millis: 5000,
            min_replicas_to_write: 0,
            max_memory_bytes: None,
            max_memory_percent: 75,
            max_memory_policy: EvictionPolicy::NoEviction,
            append_only: AppendOnly::EverySec,
            snapshots: vec![],
            parameters: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn passwords_are_read_whole_and_hostile_ones_are_refused_without_being_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            password(&path)
        };
        assert_eq!(read(b"a b\"'\\#>x\n").unwrap().expose(), "a b\"'\\#>x");
        assert_eq!(read(b"canary\r\n").unwrap().expose(), "canary");
        for hostile in [&b""[..], b"\n", b"canary\nuser evil on nopass", b"canary\0", b"\xff\xfe", &[b'c'; 513]] {
            let error = read(hostile).unwrap_err().to_string();
            assert!(error.contains("password") && !error.contains("canary"), "{error}");
        }
        assert_eq!(format!("{:?}", Secret::new("canary")), "***");
    }

    #[test]
    fn a_missing_variable_or_file_is_named() {
        let error = Options::from_env(&|_| None).unwrap_err().to_string();
        assert_eq!(error, "read the environment: POD_IP is not set");
        let error = Options::from_env(&|name| Some(if name == "POD_IP" { "x".into() } else { "/y".into() }));
        assert_eq!(error.unwrap_err().to_string(), "read the environment: POD_IP=\"x\" is not an IP address");
        let error = password(Path::new("/nowhere/agent")).unwrap_err().to_string();
        assert!(error.starts_with("read /nowhere/agent: "), "{error}");
    }
}
