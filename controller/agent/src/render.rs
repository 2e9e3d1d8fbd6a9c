//! redis.conf and users.acl as text. Pure: inputs to bytes, and the parser that proves nothing was smuggled in.
//!
//! Every word goes through `word`, which quotes what Redis' own splitter would take apart; control characters and NUL
//! never get here (they are refused by name). Passwords are hashed in the ACL file; only `masterauth`, which Redis needs
//! in the clear, is not, and both files are 0600 in memory.

use std::{fmt::Write as _, net::IpAddr, path::Path};

use types::{
    agent::AgentConfig,
    cluster::{AppendOnly, EvictionPolicy, Mode},
    config,
    names::{PORT_BUS, PORT_REDIS, USER_AGENT, USER_LOCAL, USER_OPERATOR, USER_REPLICA},
};

use crate::config::{Inputs, Options, Passwords, Secret};

/// What cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A parameter that is not allowed, or with a value it does not take.
    #[error("render redis.conf: parameter {name:?} {why}")]
    Parameter {
        /// Which.
        name: String,
        /// Why.
        why: String,
    },
    /// A path or address that no configuration file can hold.
    #[error("render redis.conf: {what} contains a control character or is not UTF-8")]
    Unprintable {
        /// Which.
        what: &'static str,
    },
}

/// One line: a name and its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Name.
    pub name: String,
    /// Words after the name.
    pub words: Vec<String>,
}

impl Directive {
    fn new(name: &str, words: &[&str]) -> Self {
        Self { name: name.to_owned(), words: words.iter().map(|word| (*word).to_owned()).collect() }
    }

    /// The value as `CONFIG SET` takes it.
    #[must_use]
    pub fn value(&self) -> String {
        self.words.join(" ")
    }
}

/// Grace that a stopping primary gives its replicas to catch up, in seconds (Redis' `shutdown-timeout`).
pub const SHUTDOWN_TIMEOUT: &str = "5";

/// All directives of redis.conf, in order.
///
/// # Errors
/// Names the parameter that is not allowed. The API server has refused it before; this is the last door.
pub fn directives(options: &Options, inputs: &Inputs) -> Result<Vec<Directive>, Error> {
    let mut all = network(options.pod_ip);
    all.extend(files(options)?);
    all.extend(persistence(&inputs.config));
    all.extend(memory(options.memory_limit, &inputs.config));
    all.extend(replication(&inputs.config, &inputs.passwords));
    if inputs.config.mode == Mode::Cluster {
        all.extend(cluster(options.pod_ip, &inputs.config));
    }
    all.extend(parameters(&inputs.config)?);
    Ok(all)
}

fn network(ip: IpAddr) -> Vec<Directive> {
    let ip = ip.to_string();
    vec![
        Directive::new("bind", &[&ip]),
        Directive::new("bind-source-addr", &[&ip]),
        Directive::new("port", &[&PORT_REDIS.to_string()]),
        Directive::new("daemonize", &["no"]),
        Directive::new("supervised", &["no"]),
        Directive::new("logfile", &[""]),
        Directive::new("shutdown-timeout", &[SHUTDOWN_TIMEOUT]),
        // No door for code or debugging, not even for a local connection.
        Directive::new("enable-protected-configs", &["no"]),
        Directive::new("enable-debug-command", &["no"]),
        Directive::new("enable-module-command", &["no"]),
    ]
}

fn files(options: &Options) -> Result<Vec<Directive>, Error> {
    let acl = options.run_dir.join("users.acl");
    Ok(vec![
        Directive::new("dir", &[printable(&options.data_dir, "the data directory")?]),
        Directive::new("aclfile", &[printable(&acl, "the run directory")?]),
        Directive::new("dbfilename", &[crate::disk::RDB_FILE]),
        Directive::new("appenddirname", &[crate::disk::AOF_DIR]),
        Directive::new("appendfilename", &["appendonly.aof"]),
        // A member that keeps nothing on disk must not find the file of its first sync there after a crash.
        Directive::new("rdb-del-sync-files", &["yes"]),
    ])
}

fn printable<'a>(path: &'a Path, what: &'static str) -> Result<&'a str, Error> {
    path.to_str().filter(|text| !text.chars().any(char::is_control)).ok_or(Error::Unprintable { what })
}

fn persistence(config: &AgentConfig) -> Vec<Directive> {
    let (append_only, fsync) = match config.append_only {
        AppendOnly::EverySec => ("yes", "everysec"),
        AppendOnly::Always => ("yes", "always"),
        AppendOnly::Off => ("no", "everysec"),
    };
    vec![
        Directive::new("appendonly", &[append_only]),
        Directive::new("appendfsync", &[fsync]),
        Directive { name: "save".to_owned(), words: save_words(config) },
    ]
}

/// One `save` line with all points; an empty word switches saving off.
fn save_words(config: &AgentConfig) -> Vec<String> {
    if config.snapshots.is_empty() {
        return vec![String::new()];
    }
    config.snapshots.iter().flat_map(|point| [point.seconds.to_string(), point.changes.to_string()]).collect()
}

fn memory(limit: Option<u64>, config: &AgentConfig) -> Vec<Directive> {
    let share = |limit: u64| {
        let part = u128::from(limit) * u128::from(config.max_memory_percent.min(100)) / 100;
        u64::try_from(part).unwrap_or(limit)
    };
    let bytes = config.max_memory_bytes.or_else(|| limit.map(share)).unwrap_or(0);
    vec![
        Directive::new("maxmemory", &[&bytes.to_string()]),
        Directive::new("maxmemory-policy", &[policy(config.max_memory_policy)]),
    ]
}

fn policy(policy: EvictionPolicy) -> &'static str {
    match policy {
        EvictionPolicy::NoEviction => "noeviction",
        EvictionPolicy::AllkeysLru => "allkeys-lru",
        EvictionPolicy::AllkeysLfu => "allkeys-lfu",
        EvictionPolicy::AllkeysRandom => "allkeys-random",
        EvictionPolicy::VolatileLru => "volatile-lru",
        EvictionPolicy::VolatileLfu => "volatile-lfu",
        EvictionPolicy::VolatileRandom => "volatile-random",
        EvictionPolicy::VolatileTtl => "volatile-ttl",
    }
}

fn replication(config: &AgentConfig, passwords: &Passwords) -> Vec<Directive> {
    vec![
        Directive::new("masteruser", &[USER_REPLICA]),
        Directive::new("masterauth", &[passwords.replica.expose()]),
        Directive::new("min-replicas-to-write", &[&config.min_replicas_to_write.to_string()]),
        // The default delay of 5 s sits in every first sync and every backup (performance.md T1).
        Directive::new("repl-diskless-sync", &["yes"]),
        Directive::new("repl-diskless-sync-delay", &["0"]),
    ]
}

fn cluster(ip: IpAddr, config: &AgentConfig) -> Vec<Directive> {
    vec![
        Directive::new("cluster-enabled", &["yes"]),
        Directive::new("cluster-config-file", &[crate::disk::NODES_FILE]),
        Directive::new("cluster-port", &[&PORT_BUS.to_string()]),
        Directive::new("cluster-announce-ip", &[&ip.to_string()]),
        Directive::new("cluster-node-timeout", &[&config.node_timeout_millis.to_string()]),
        Directive::new("cluster-allow-replica-migration", &["no"]),
        Directive::new("cluster-require-full-coverage", &["no"]),
        // A replica starts without the right to be promoted; the agent grants it from its first sync on and takes it back while its
        // primary goes on without it. Redis' own bound on the age of a copy stands behind that, should the agent hang.
        Directive::new("cluster-replica-validity-factor", &["10"]),
        Directive::new("cluster-replica-no-failover", &["yes"]),
    ]
}

fn parameters(config: &AgentConfig) -> Result<Vec<Directive>, Error> {
    config
        .parameters
        .iter()
        .map(|(name, value)| match config::check(name, value) {
            // Accepted values hold no quote, backslash, `#` or control character; words are parted by spaces.
            Ok(_) if value.is_empty() => Ok(Directive::new(name, &[""])),
            Ok(_) => Ok(Directive::new(name, &value.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>())),
            Err(refusal) => Err(Error::Parameter { name: name.clone(), why: refusal.to_string() }),
        })
        .collect()
}

/// The text of redis.conf.
#[must_use]
pub fn text(directives: &[Directive]) -> String {
    let mut text = String::new();
    for directive in directives {
        text.push_str(&directive.name);
        for one in &directive.words {
            text.push(' ');
            word(&mut text, one);
        }
        text.push('\n');
    }
    text
}

/// Appends one word so that Redis' splitter reads it back unchanged.
fn word(text: &mut String, word: &str) {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#');
    if !word.is_empty() && word.bytes().all(plain) {
        text.push_str(word);
        return;
    }
    text.push('"');
    for byte in word.bytes() {
        match byte {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' => text.push(char::from(byte)),
            other => {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\x{other:02x}");
            }
        }
    }
    text.push('"');
}

/// The text of users.acl: five users, nothing else. Passwords as SHA-256, `own` is that of the user of this very agent.
#[must_use]
pub fn acl(passwords: &Passwords, own: &Secret, replicas: Replicas) -> String {
    let hash = |password: &Secret| format!("#{}", crate::digest::sha256_hex(password.expose().as_bytes()));
    let users = [
        ("default", hash(&passwords.application), APPLICATION),
        (USER_OPERATOR, hash(&passwords.operator), OPERATOR),
        (USER_AGENT, hash(&passwords.agent), AGENT),
        (USER_REPLICA, crate::replication::rules(passwords, replicas.lets_old_in).join(" "), REPLICA),
        (USER_LOCAL, hash(own), LOCAL),
    ];
    users
        .iter()
        .map(|(user, hashes, rules)| {
            let state = if *user == USER_REPLICA && !replicas.are_let_in { "off" } else { "on" };
            format!("user {user} {state} sanitize-payload {hashes} {rules}\n")
        })
        .collect()
}

/// Who may replicate from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Anybody at all ([`crate::admission`]).
    pub are_let_in: bool,
    /// Also members of earlier releases ([`crate::replication`]).
    pub lets_old_in: bool,
}

/// The application: every data command, none that administers. Read-only cluster commands are neither admin nor dangerous.
const APPLICATION: &str =
    "~* &* +@all -@admin -@dangerous +info +keys +flushdb +flushall +sort +sort_ro +role +client|list";

/// The controller: topology and configuration. It may move keys (MIGRATE, RESTORE) but neither read, write nor delete them,
/// and there is no FLUSH*, RESET, DEBUG, MODULE, EVAL, FCALL or KEYS: a bug in it cannot wipe a node (reliability.md rule 3). Libraries of functions
/// it copies to a new primary. It can neither call nor delete them, and sends REPLACE to a primary without slots only; the right to load one includes it, as an ACL knows no argument.
const OPERATOR: &str = "~* resetchannels &kun:bus -@all +publish +ping +role +info +wait +dbsize +lastsave +asking +auth +hello +echo +select \
    +readonly +command +migrate +restore +restore-asking +memory|usage +acl|whoami +acl|dryrun +config|get +config|set \
    +config|resetstat +client|id +client|info +client|list +client|getname +client|setname +client|pause \
    +client|unpause +client|reply +client|no-evict +slowlog|get +slowlog|len +latency|latest \
    +cluster|info +cluster|nodes +cluster|myid +cluster|slots +cluster|shards +cluster|links +cluster|keyslot \
    +cluster|countkeysinslot +cluster|getkeysinslot +cluster|replicas +cluster|count-failure-reports \
    +cluster|meet +cluster|forget +cluster|replicate +cluster|failover +cluster|setslot +cluster|addslots \
    +cluster|addslotsrange +cluster|delslots +cluster|delslotsrange +cluster|set-config-epoch +cluster|bumpepoch \
    +cluster|saveconfig +function|list +function|load";

/// The agents: state, hand-over (with the marks of half-moved slots), a snapshot before the append-only file is switched off, shutdown, and the
/// replication stream for backups.
const AGENT: &str = "resetkeys resetchannels &kun:bus -@all +publish +ping +role +info +wait +dbsize +lastsave +auth +hello +select +command \
    +config|get +config|set +acl|whoami +bgsave +shutdown +script|kill +function|kill +psync +sync +replconf +client|id +client|info +client|setname \
    +cluster|info +cluster|nodes +cluster|myid +cluster|slots +cluster|shards +cluster|failover +cluster|setslot";

/// The agent at its own Redis: users, and whom it closes out.
const LOCAL: &str = "resetkeys resetchannels -@all +ping +auth +hello +acl|setuser +client|kill +client|list";

/// Replication.
const REPLICA: &str = "resetkeys resetchannels -@all +ping +psync +replconf";

/// Reads a configuration text as Redis splits it. Only tests and the property need it.
///
/// # Errors
/// When quotes do not balance.
pub fn parse(text: &str) -> Result<Vec<Directive>, String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut words = split(line).ok_or_else(|| format!("unbalanced quotes in {line:?}"))?;
            if words.is_empty() {
                return Err(format!("no name in {line:?}"));
            }
            let name = words.remove(0).to_ascii_lowercase();
            Ok(Directive { name, words })
        })
        .collect()
}

/// Redis' splitter: spaces part words; `"…"` knows \xHH and \n \r \t \b \a; `'…'` knows \'.
fn split(line: &str) -> Option<Vec<String>> {
    let mut bytes = line.bytes().peekable();
    let mut words = Vec::new();
    loop {
        while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
        let mut word: Vec<u8> = Vec::new();
        match bytes.peek() {
            None => return Some(words),
            Some(b'"') => {
                bytes.next();
                double_quoted(&mut bytes, &mut word)?;
            }
            Some(b'\'') => {
                bytes.next();
                single_quoted(&mut bytes, &mut word)?;
            }
            Some(_) => {
                while let Some(byte) = bytes.next_if(|byte| !byte.is_ascii_whitespace()) {
                    word.push(byte);
                }
            }
        }
        // What follows a closing quote must be a space or the end.
        if bytes.peek().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return None;
        }
        words.push(String::from_utf8(word).ok()?);
    }
}

fn double_quoted(bytes: &mut impl Iterator<Item = u8>, word: &mut Vec<u8>) -> Option<()> {
    loop {
        match bytes.next()? {
            b'"' => return Some(()),
            b'\\' => match bytes.next()? {
                b'x' => {
                    let digits = [bytes.next()?, bytes.next()?];
                    word.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                }
                b'n' => word.push(b'\n'),
                b'r' => word.push(b'\r'),
                b't' => word.push(b'\t'),
                b'b' => word.push(8),
                b'a' => word.push(7),
                other => word.push(other),
            },
            other => word.push(other),
        }
    }
}

fn single_quoted(bytes: &mut impl Iterator<Item = u8>, word: &mut Vec<u8>) -> Option<()> {
    loop {
        match bytes.next()? {
            b'\'' => return Some(()),
            b'\\' => match bytes.next()? {
                b'\'' => word.push(b'\''),
                other => word.extend([b'\\', other]),
            },
            other => word.push(other),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
