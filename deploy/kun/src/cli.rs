//! What a person types. Every flag is checked here, with a message that says what to do; behind this file all is typed.

pub mod audit;
pub mod cluster;
mod ctl;
pub mod store;

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

use clap::{Parser, Subcommand, ValueEnum};
use types::version::Version;

use crate::log::{self, Form, chain};
use crate::node::{
    address::Cidr,
    image::{self, Local},
};
use crate::standalone;

/// Exit code of a usage error, as clap has it.
const USAGE: u8 = 2;
/// Longest data directory: the node keeps some paths below it short, but a socket's path has 107 bytes at most.
const DATA_PATH_MOST: usize = 60;

/// Redis as a Kubernetes API.
#[derive(Debug, Parser)]
#[command(name = "kun", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Everything in one process on this machine; pods are local processes on loopback addresses.
    Standalone(Box<Flags>),
    /// The API server of a cluster, behind its kube-apiserver, which says who asks and what he may do.
    Apiserver(Box<cluster::ServerFlags>),
    /// The admission webhook of a cluster.
    Webhook(cluster::WebhookFlags),
    /// The controller of a cluster. Several may run; one of them leads.
    Controller(cluster::ControllerFlags),
    /// Makes the authorities and certificates of a cluster, and turns them before they end.
    Certs(cluster::CertsFlags),
    /// Backups of the embedded store.
    #[command(subcommand)]
    Store(Keeping),
    /// What a person does to an installation, with a kubeconfig.
    #[command(subcommand)]
    Ctl(ctl::Ctl),
    /// PID 1 of a Redis pod (run by pods, not by people).
    Agent,
    /// Prints the version.
    Version,
}

/// `kun store`.
#[derive(Debug, Subcommand)]
enum Keeping {
    /// Writes every object, as of one moment, to a file. The server may run.
    Backup {
        /// The server's data directory.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The file to write; there must be none yet.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Makes the store of a data directory from such a file. The server must not run.
    Restore {
        /// The file.
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// The data directory.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Replace the store of a directory in use; the old one is kept beside it.
        #[arg(long)]
        force: bool,
    },
}

/// Flags of `kun standalone`.
#[derive(Debug, clap::Args)]
struct Flags {
    /// Directory for everything that must survive: objects, keys, volumes. Created if absent.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where the API listens.
    #[arg(long, default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Loopback network from which each pod gets an address.
    #[arg(long, value_name = "CIDR", default_value = "127.77.0.0/16")]
    pod_cidr: Cidr,
    /// redis-server; absent: the one on the PATH. Several, of different versions, if it is given several times.
    #[arg(long, value_name = "PATH")]
    redis_server: Vec<PathBuf>,
    /// Which parts to run. Processes that share --data must use the same --listen.
    #[arg(long, value_delimiter = ',', default_value = "apiserver,webhook,controller,node")]
    roles: Vec<Role>,
    #[command(flatten)]
    store: store::StoreFlags,
    #[command(flatten)]
    audit: audit::AuditFlags,
    /// Log lines for a person or for a machine.
    #[arg(long, value_enum, default_value = "text")]
    log: Form,
    /// Say more; twice for everything.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// A part of standalone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Role {
    /// The API server and its store.
    Apiserver,
    /// The admission webhook.
    Webhook,
    /// The controller.
    Controller,
    /// The node.
    Node,
}

impl fmt::Display for Role {
    /// As `--roles` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Apiserver => "apiserver",
            Self::Webhook => "webhook",
            Self::Controller => "controller",
            Self::Node => "node",
        })
    }
}

/// Why the flags cannot be used. Each says what to do.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "--listen {0}: give an address of the loopback network, such as 127.0.0.1:8443; standalone is for one machine"
    )]
    ListenNotLocal(SocketAddr),
    #[error("--listen {0}: give a port; other processes and the kubeconfig must know it")]
    NoPort(SocketAddr),
    #[error("--secure-port 0: give a port; the Service must know it")]
    NoSecurePort,
    #[error("--observe {0}: give a port; probes must know it")]
    NoObservePort(SocketAddr),
    #[error("--serving {0:?}: give SECRET=SERVICE, such as kun-webhook-tls=kun-webhook")]
    Serving(String),
    #[error(
        "--client-name {0:?}: give SECRET=NAME, such as kun-apiserver-tls=kun:apiserver, of a Secret that --serving names"
    )]
    ClientName(String),
    #[error("--{flag} {given:?}: give a time such as 24h or 90m, of {least:?} at least")]
    Time { flag: &'static str, given: String, least: Duration },
    #[error("--data {path}: {why}")]
    Data { path: PathBuf, why: String },
    #[error("--data {0}: the path has {1} bytes, the most is {DATA_PATH_MOST}; sockets below it need the rest")]
    DataTooLong(PathBuf, usize),
    #[error("--data {0:?}: choose a path without blanks, quotes, control characters and the characters \\ : = $")]
    DataNotPlain(PathBuf),
    #[error("redis-server is not on the PATH; on Debian: apt-get install redis-server, or give --redis-server PATH")]
    NoRedis,
    #[error("--redis-server {path}: {why}")]
    BadRedis { path: PathBuf, why: String },
    #[error(
        "--redis-server {one} and {other} are both {version}: an image could not choose between them, so leave one out"
    )]
    SameRedis { one: PathBuf, other: PathBuf, version: Version },
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Audit(#[from] audit::Error),
    #[error("cannot find our own executable: {0}")]
    OwnProgram(std::io::Error),
}

/// Parses the command line and runs what it names.
pub fn run() -> ExitCode {
    match Arguments::parse().command {
        Part::Standalone(flags) => run_standalone(*flags),
        Part::Apiserver(flags) => cluster::run_apiserver(*flags),
        Part::Webhook(flags) => cluster::run_webhook(flags),
        Part::Controller(flags) => cluster::run_controller(flags),
        Part::Certs(flags) => cluster::run_certs(flags),
        Part::Store(what) => keep(what),
        Part::Ctl(what) => ctl::run(what),
        // main.rs has handled it.
        Part::Agent => crate::agent::run(std::env::args_os().skip(2)),
        Part::Version => {
            say(&format!("kun {}", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
    }
}

fn keep(what: Keeping) -> ExitCode {
    let done = match what {
        Keeping::Backup { data, to } => crate::keeping::backup(&data, &to),
        Keeping::Restore { from, data, force } => crate::keeping::restore(&from, &data, force, SystemTime::now()),
    };
    match done {
        Ok(sentence) => {
            say(&sentence);
            ExitCode::SUCCESS
        }
        Err(error) => fail(1, &chain(&error)),
    }
}

fn run_standalone(flags: Flags) -> ExitCode {
    let (form, verbosity) = (flags.log, flags.verbose);
    match check(flags) {
        Ok(options) => run_with(form, verbosity, Some(&options.data.join("audit.log")), standalone::run(options)),
        Err(error) => fail(USAGE, &error.to_string()),
    }
}

/// Runs a part to its end.
fn run_with<E: std::error::Error + 'static>(
    form: Form,
    verbosity: u8,
    audit: Option<&Path>,
    part: impl Future<Output = Result<ExitCode, E>>,
) -> ExitCode {
    if let Err(error) = log::begin(form, verbosity, audit) {
        return fail(1, &format!("open {}: {error}", audit.unwrap_or(Path::new("the log")).display()));
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(1, &format!("start the runtime: {error}")),
    };
    match runtime.block_on(part) {
        Ok(code) => code,
        Err(error) => fail(1, &chain(&error)),
    }
}

/// From flags to options; every wrong one is refused with what to do.
fn check(flags: Flags) -> Result<standalone::Options, Error> {
    if !flags.listen.ip().is_loopback() {
        return Err(Error::ListenNotLocal(flags.listen));
    }
    if flags.listen.port() == 0 {
        return Err(Error::NoPort(flags.listen));
    }
    let roles: BTreeSet<Role> = flags.roles.into_iter().collect();
    let store = store::kept(flags.store, roles.contains(&Role::Apiserver))?;
    let data = directory(&flags.data)?;
    let redis = if roles.contains(&Role::Node) { redis_servers(&flags.redis_server)? } else { Vec::new() };
    Ok(standalone::Options {
        data,
        store,
        audit: audit::recorded(flags.audit)?,
        listen: flags.listen,
        pod_cidr: flags.pod_cidr,
        redis,
        roles,
        own_program: std::env::current_exe().map_err(Error::OwnProgram)?,
    })
}

fn directory(path: &Path) -> Result<PathBuf, Error> {
    let bad = |error: std::io::Error| Error::Data { path: path.to_owned(), why: error.to_string() };
    // Looked at before it is made: a refused name leaves nothing behind.
    check_path(&std::path::absolute(path).map_err(bad)?)?;
    if !path.exists() {
        std::fs::create_dir_all(path).map_err(bad)?;
        crate::standalone::private(path).map_err(bad)?;
    }
    // Links are resolved here, once: pods get paths that stay what they are.
    let data = path.canonicalize().map_err(bad)?;
    if !data.is_dir() {
        return Err(Error::Data { path: data, why: "not a directory".to_owned() });
    }
    check_path(&data)?;
    Ok(data)
}

/// Paths below the data directory reach redis.conf, environment variables and search paths, where these have a meaning.
fn check_path(path: &Path) -> Result<(), Error> {
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '"' | '\'' | '\\' | ':' | '=' | '$');
    if !path.to_str().is_some_and(|text| text.chars().all(plain)) {
        return Err(Error::DataNotPlain(path.to_owned()));
    }
    let length = path.as_os_str().len();
    if length > DATA_PATH_MOST { Err(Error::DataTooLong(path.to_owned(), length)) } else { Ok(()) }
}

/// Those that are given, or else the one on the PATH.
fn redis_servers(given: &[PathBuf]) -> Result<Vec<Local>, Error> {
    if given.is_empty() {
        return Ok(vec![redis_server(on_path("redis-server").ok_or(Error::NoRedis)?)?]);
    }
    let local: Vec<Local> = given.iter().map(|program| redis_server(whole(program)?)).collect::<Result<_, _>>()?;
    if let Some([one, other]) = image::of_one_version(&local) {
        let (one, other, version) = (one.program.clone(), other.program.clone(), one.version);
        return Err(Error::SameRedis { one, other, version });
    }
    Ok(local)
}

/// A relative path is of the directory where kun was started, and a bare name is looked for on the PATH, as shells do; programs of pods run
/// elsewhere. The last link stays: its name counts.
fn whole(program: &Path) -> Result<PathBuf, Error> {
    let bad = |error: std::io::Error| Error::BadRedis { path: program.to_owned(), why: error.to_string() };
    let is_bare = program.parent().is_some_and(|folder| folder.as_os_str().is_empty());
    let found = program.to_str().filter(|_| is_bare).and_then(on_path).unwrap_or_else(|| program.to_owned());
    let folder = found.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(folder.canonicalize().map_err(bad)?.join(found.file_name().unwrap_or_default()))
}

/// Asks a redis-server for its version.
fn redis_server(program: PathBuf) -> Result<Local, Error> {
    let bad = |why: String| Error::BadRedis { path: program.clone(), why };
    let out = Command::new(&program).arg("--version").output().map_err(|error| bad(error.to_string()))?;
    let banner = String::from_utf8_lossy(&out.stdout);
    let says = banner.lines().next().unwrap_or_default();
    let version: Version = image::version_of_banner(&banner)
        .ok_or_else(|| bad(format!("not a redis-server: asked for its version, it says {says:?}")))?;
    Ok(Local { program, version })
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}

fn fail(code: u8, message: &str) -> ExitCode {
    use std::io::Write as _;
    // If standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "kun: {message}");
    ExitCode::from(code)
}

/// One line on standard output.
pub fn say(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn checked(words: &[&str]) -> Result<standalone::Options, String> {
        let words = ["kun", "standalone"].iter().chain(words);
        let Part::Standalone(flags) = Arguments::try_parse_from(words).map_err(|error| error.to_string())?.command
        else {
            panic!("standalone was asked for")
        };
        check(*flags).map_err(|error| error.to_string())
    }

    #[test]
    fn every_wrong_flag_is_refused_with_what_to_do() {
        let dir = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        let data = dir.path().to_str().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let (file, long) = (file.to_str().unwrap(), format!("{data}/{}", "x".repeat(DATA_PATH_MOST)));
        let blank = format!("{data}/a b");
        for (words, part) in [
            (vec!["--data", data, "--listen", "10.0.0.1:8443"], "loopback"),
            (vec!["--data", data, "--listen", "127.0.0.1:0"], "give a port"),
            (vec!["--data", data, "--listen", "nonsense"], "--listen"),
            (vec!["--data", data, "--pod-cidr", "10.0.0.0/16"], "127.0.0.0/8"),
            (vec!["--data", data, "--pod-cidr", "127.0.0.1\n/16"], "127.77.0.0/16"),
            (vec!["--data", data, "--roles", "apiserver,nobody"], "nobody"),
            (vec!["--data", data, "--log", "xml"], "xml"),
            (vec!["--data", data, "--redis-server", "/no/such/redis-server"], "/no/such/redis-server"),
            (vec!["--data", data, "--redis-server", "/bin/true"], "not a redis-server"),
            (vec!["--data", data, "--store", "sqlite"], "sqlite"),
            (vec!["--data", data, "--store", "etcd"], "--etcd-servers"),
            (vec!["--data", data, "--etcd-prefix", "/kun"], "belongs to --store etcd"),
            (vec!["--data", file], "not a directory"),
            (vec!["--data", &long], "the most is 60"),
            (vec!["--data", &blank], "without blanks"),
            (vec!["--data", "/proc/none/x"], "/proc/none/x"),
            (vec![], "--data"),
        ] {
            let refused = checked(&words).unwrap_err();
            assert!(refused.contains(part), "{words:?}: {refused}");
            assert!(!refused.contains("License"), "{words:?}: what another program prints stays out: {refused}");
        }
    }

    #[test]
    fn two_programs_of_one_version_are_refused_by_their_names() {
        let dir = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        let (one, other) = (on_path("redis-server").unwrap(), dir.path().join("redis-server"));
        std::os::unix::fs::symlink(&one, &other).unwrap();
        let refused = redis_servers(&[one.clone(), other.clone()]).unwrap_err().to_string();
        let both = format!("--redis-server {} and {} are both ", one.display(), other.display());
        assert!(refused.starts_with(&both), "{refused}");
        assert!(refused.ends_with(": an image could not choose between them, so leave one out"), "{refused}");
        assert_eq!(redis_servers(std::slice::from_ref(&other)).unwrap()[0].program, other);
    }

    #[test]
    fn a_relative_path_is_of_the_directory_where_kun_was_started() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(whole(Path::new("./src/redis-server")).unwrap(), here.join("src/redis-server"));
        assert_eq!(whole(Path::new("src/../none")).unwrap(), here.join("none"));
        assert_eq!(whole(Path::new("sh")).unwrap().file_name(), Some("sh".as_ref()));
        assert!(whole(Path::new("sh")).unwrap().is_absolute());
    }

    #[test]
    fn the_defaults_are_those_of_the_manual() {
        let dir = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        let options = checked(&["--data", dir.path().to_str().unwrap(), "--roles", "apiserver,controller"]).unwrap();
        assert_eq!(options.listen.to_string(), "127.0.0.1:8443");
        assert_eq!(options.pod_cidr.to_string(), "127.77.0.0/16");
        assert_eq!(options.roles, BTreeSet::from([Role::Apiserver, Role::Controller]));
        assert!(options.redis.is_empty(), "without a node no redis-server is needed");
    }
}
