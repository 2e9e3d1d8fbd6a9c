//! A new configuration is tried by the engine itself before anybody relies on it. I/O around pure choices.
//!
//! A throw-away process of the pod's own server, within the pod's own limits, reads the directives that the next start would read, but for
//! those by which members meet and find files (`LEFT_OUT`, `cluster-*`): it listens on a socket in a directory in memory, has no data,
//! joins nobody and knows no password. It is asked what it understood, and killed.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Child, Command as Program, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use resp::{Command, Limits, decode::Decoder, reply};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixStream, unix::pipe},
    time::sleep,
};
use types::{
    config::shows,
    last_words::{last_about, last_words, refuses_its_configuration},
};

use crate::{
    config::{Inputs, Options},
    parameters::Parameters,
    process::{self, Record},
    render::{self, Directive},
};

/// In the run directory.
const DIR: &str = "trial";
/// Relative, because a path to a socket may have 107 bytes.
const SOCKET: &str = "s";
/// Directives that would collide with the server that runs, need its files, or carry a password.
const LEFT_OUT: [&str; 8] =
    ["aclfile", "appendonly", "bind", "bind-source-addr", "dir", "masterauth", "masteruser", "port"];
/// How long the process may take to answer: it takes some 20 ms, unless the machine is stalled.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// What is kept of its output: a refusal has five lines.
const OUTPUT_MAX: usize = 64 << 10;
/// How long a killed process is waited for.
const REAPED: Duration = Duration::from_secs(1);
/// The first to go where the kernel ends single processes for want of memory. Where it ends all of a container at once (`memory.oom.group`,
/// which Kubernetes 1.28 and later set on cgroup v2), `ROOM` keeps it from coming to that.
const OOM_FIRST: &str = "1000";
/// What must be left of the container's memory beside a running server. A trial takes some 10 MB, 40 more with the most clients there can be.
const ROOM: u64 = 64 << 20;
/// Where a container finds its cgroup.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What came of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The engine starts with it and shows what was asked for.
    Takes,
    /// It starts, and makes something else of these parameters, in its own words.
    Alters(BTreeMap<String, String>),
    /// It does not start with it, in its own words, and never will.
    Refuses(String),
    /// Nobody knows: the process could not be had, ended for another reason, or did not answer in time.
    Undecided(String),
}

/// Tries these inputs beside the server that runs, if there is memory for both.
pub async fn try_beside_server(options: &Options, inputs: &Inputs) -> Verdict {
    match Memory::of_this_container().as_ref().and_then(Memory::want) {
        Some(why) => Verdict::Undecided(why),
        None => try_out(options, inputs).await,
    }
}

/// The memory of a cgroup, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Memory {
    limit: u64,
    used: u64,
    /// Of what is used: pages of files that the kernel gives back first.
    reclaimable: u64,
}

impl Memory {
    /// Of the own cgroup, v2 or v1; `None`: it has no limit, or cannot be read.
    fn of_this_container() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = |is_it: fn(&str) -> bool| {
            let found = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            found.filter(|(controllers, _)| is_it(controllers)).map(|(_, path)| path.to_owned()).next()
        };
        let v2 = path(str::is_empty)
            .and_then(|path| Self::read(Path::new(CGROUPS), &path, ["memory.max", "memory.current"], "inactive_file"));
        v2.or_else(|| {
            let path = path(|all| all.split(',').any(|one| one == "memory"))?;
            let files = ["memory.limit_in_bytes", "memory.usage_in_bytes"];
            Self::read(&Path::new(CGROUPS).join("memory"), &path, files, "total_inactive_file")
        })
    }

    /// The path is the host's where the container sees nothing but its own cgroup.
    fn read(root: &Path, path: &str, [limit, used]: [&str; 2], reclaimable: &str) -> Option<Self> {
        let own = root.join(path.trim_start_matches('/'));
        let dir = if own.join(limit).exists() { own.as_path() } else { root };
        let text = |file: &str| fs::read_to_string(dir.join(file)).ok();
        Self::parse(&text(limit)?, &text(used)?, &text("memory.stat")?, reclaimable)
    }

    /// Pure. `max` is no limit.
    fn parse(limit: &str, used: &str, stat: &str, reclaimable: &str) -> Option<Self> {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let line = stat.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == reclaimable);
        let reclaimable = line.and_then(|(_, bytes)| number(bytes)).unwrap_or_default();
        Some(Self { limit: number(limit)?, used: number(used)?, reclaimable })
    }

    /// Why nothing can be tried beside a server; `None`: there is room. Pure.
    fn want(&self) -> Option<String> {
        let left = self.limit.saturating_sub(self.used.saturating_sub(self.reclaimable));
        (left < ROOM).then(|| {
            let (left, room) = (left >> 20, ROOM >> 20);
            format!("there is too little memory to try it: {left} MiB are left of the container's, and {room} MiB are asked for")
        })
    }
}

/// Tries these inputs.
pub async fn try_out(options: &Options, inputs: &Inputs) -> Verdict {
    let outcome = match begin(options, inputs) {
        Ok(trial) => trial.outcome(&inputs.config.parameters).await,
        Err(error) => Verdict::Undecided(format!("the configuration cannot be tried: {error}")),
    };
    if let Err(error) = fs::remove_dir_all(options.run_dir.join(DIR)) {
        tracing::debug!(%error, "the directory of a trial stays");
    }
    outcome
}

/// A process that tries a configuration. It is killed when this is dropped.
struct Trial {
    child: Child,
    /// A pid alone could be another's: whoever reaps children reaps this one, too.
    itself: OwnedFd,
    dir: PathBuf,
    output: [pipe::Receiver; 2],
}

impl Drop for Trial {
    fn drop(&mut self) {
        // That it is gone already is no failure.
        let _ = pidfd_send_signal(&self.itself, Signal::KILL);
    }
}

fn begin(options: &Options, inputs: &Inputs) -> io::Result<Trial> {
    let dir = options.run_dir.join(DIR);
    // Of an agent that was killed.
    if let Ok(Some(left)) = process::left_running(&dir) {
        left.signal(Signal::KILL);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let conf = dir.join("redis.conf");
    let directives = render::directives(options, inputs).map_err(io::Error::other)?;
    certs::write_private(&conf, render::text(&reduced(directives)).as_bytes()).map_err(io::Error::other)?;
    #[allow(clippy::zombie_processes, reason = "it is reaped in `outcome`, or together with every other child")]
    let mut child = Program::new(&options.redis_server)
        .arg(&conf)
        .current_dir(&dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let number = i32::try_from(child.id()).unwrap_or_default();
    let pid = Pid::from_raw(number).ok_or_else(|| io::Error::other("it has no pid"))?;
    let itself = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| drop(child.kill()))?;
    let piped = || io::Error::other("its output is not piped");
    let (stdout, stderr) = (child.stdout.take().ok_or_else(piped)?, child.stderr.take().ok_or_else(piped)?);
    let output = [pipe::Receiver::from_owned_fd(stdout.into())?, pipe::Receiver::from_owned_fd(stderr.into())?];
    if let Some(record) = Record::of(number)
        && let Err(error) = process::write_record(&dir, &record)
    {
        tracing::debug!(%error, "a trial is not recorded");
    }
    if let Err(error) = fs::write(format!("/proc/{number}/oom_score_adj"), OOM_FIRST) {
        tracing::debug!(%error, "a trial is not the first to be killed for want of memory");
    }
    Ok(Trial { child, itself, dir, output })
}

/// What the process reads. Pure.
fn reduced(directives: Vec<Directive>) -> Vec<Directive> {
    let is_kept = |one: &Directive| !LEFT_OUT.contains(&one.name.as_str()) && !one.name.starts_with("cluster-");
    let own = [("port", "0"), ("unixsocket", SOCKET), ("appendonly", "no")]
        .map(|(name, word)| Directive { name: name.to_owned(), words: vec![word.to_owned()] });
    directives.into_iter().filter(is_kept).chain(own).collect()
}

impl Trial {
    async fn outcome(mut self, wanted: &Parameters) -> Verdict {
        let log = Mutex::new(Vec::new());
        let [stdout, stderr] = &mut self.output;
        let listening = async { tokio::join!(listen(stdout, &log), listen(stderr, &log)) };
        tokio::pin!(listening);
        let answered = tokio::select! {
            // What it answers counts, not that it ends afterwards.
            biased;
            shown = answer(&self.dir, wanted) => Answered::Shows(shown),
            _ = &mut listening => Answered::Ended,
            () = sleep(PATIENCE) => Answered::Nothing,
        };
        let _ = pidfd_send_signal(&self.itself, Signal::KILL);
        match answered {
            Answered::Ended => {}
            // What it said before is still on its way.
            Answered::Shows(_) | Answered::Nothing => {
                let _ = tokio::time::timeout(REAPED, listening).await;
            }
        }
        let child = &mut self.child;
        let reaped = async {
            while matches!(child.try_wait(), Ok(None)) {
                sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(REAPED, reaped).await;
        let said = log.lock().unwrap_or_else(PoisonError::into_inner);
        judge(answered, wanted, &String::from_utf8_lossy(&said))
    }
}

enum Answered {
    Shows(Parameters),
    Ended,
    Nothing,
}

fn judge(answered: Answered, wanted: &Parameters, said: &str) -> Verdict {
    match answered {
        Answered::Shows(shown) => {
            let words = |(name, shows): (&str, &str)| {
                let value = wanted.get(name).map(String::as_str).unwrap_or_default();
                let why = last_about(said, name).map_or_else(|| format!("it makes {shows:?} of it"), str::to_owned);
                (name.to_owned(), format!("{name} {value}: {why}"))
            };
            let altered: BTreeMap<_, _> = unlike(wanted, &shown).map(words).collect();
            if altered.is_empty() { Verdict::Takes } else { Verdict::Alters(altered) }
        }
        Answered::Ended => {
            let words = last_words(said).unwrap_or_else(|| "nothing".to_owned());
            if refuses_its_configuration(said) {
                Verdict::Refuses(words)
            } else {
                Verdict::Undecided(format!("the engine ended when it was tried; it said last: {words}"))
            }
        }
        Answered::Nothing => {
            Verdict::Undecided(format!("the engine did not answer within {} s when it was tried", PATIENCE.as_secs()))
        }
    }
}

/// Parameters that a server shows otherwise than they are wanted. What it does not list has no effect on it, and differs from nothing.
pub(crate) fn unlike<'a>(wanted: &'a Parameters, shown: &'a Parameters) -> impl Iterator<Item = (&'a str, &'a str)> {
    wanted.iter().filter_map(|(name, value)| {
        let found = shown.get(name)?;
        (!shows(name, value, found)).then_some((name.as_str(), found.as_str()))
    })
}

/// Reads to the end, keeping the beginning.
async fn listen(pipe: &mut pipe::Receiver, log: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let room = OUTPUT_MAX.saturating_sub(log.len());
        log.extend(chunk.iter().take(count.min(room)));
    }
}

/// What the process shows, once it serves.
async fn answer(dir: &Path, wanted: &Parameters) -> Parameters {
    loop {
        if let Ok(shown) = ask(dir, wanted).await {
            return shown;
        }
        sleep(LOOK).await;
    }
}

async fn ask(dir: &Path, wanted: &Parameters) -> io::Result<Parameters> {
    let dir = fs::File::open(dir)?;
    let mut stream = UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd())).await?;
    let mut request = Vec::new();
    Command::new("CONFIG").arg("GET").args(wanted.keys()).encode(&mut request);
    stream.write_all(&request).await?;
    let mut decoder = Decoder::new(Limits::default());
    loop {
        if let Some(reply) = decoder.decode().map_err(io::Error::other)? {
            return reply::config_get(&reply).map_err(io::Error::other);
        }
        if stream.read_buf(decoder.buffer()).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn one(name: &str, value: &str) -> Parameters {
        Parameters::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn a_trial_meets_nobody_finds_no_files_and_knows_no_password() {
        let directive = |name: &str, word: &str| Directive { name: name.into(), words: vec![word.into()] };
        let all =
            ["bind", "port", "dir", "aclfile", "masterauth", "cluster-enabled", "maxclients", "save", "appendonly"];
        let left = reduced(all.iter().map(|name| directive(name, "1")).collect());
        let expected = [("maxclients", "1"), ("save", "1"), ("port", "0"), ("unixsocket", "s"), ("appendonly", "no")];
        assert_eq!(left, expected.map(|(name, word)| directive(name, word)));
    }

    #[test]
    fn what_the_engine_makes_of_it_is_told_in_its_words() {
        let wanted = one("maxclients", "1000000");
        let log = "9:M 24 Nov 2026 05:44:49.4 # maxclients has been reduced to 19968\n";
        let of = |shown: &str, log: &str| judge(Answered::Shows(one("maxclients", shown)), &wanted, log);
        assert_eq!(of("1000000", log), Verdict::Takes);
        let altered = |told: &str| Verdict::Alters(one("maxclients", told));
        assert_eq!(of("19968", log), altered("maxclients 1000000: maxclients has been reduced to 19968"));
        assert_eq!(of("19968", ""), altered("maxclients 1000000: it makes \"19968\" of it"));
        // Valkey takes some that have no effect on it, and shows them to nobody.
        assert_eq!(judge(Answered::Shows(Parameters::new()), &wanted, ""), Verdict::Takes);
        assert!(matches!(judge(Answered::Nothing, &wanted, ""), Verdict::Undecided(_)));
    }

    #[test]
    fn only_an_end_for_the_configurations_sake_is_a_refusal() {
        let of = |said: &str| judge(Answered::Ended, &one("timeout", "00"), said);
        let fault = "Reading the configuration file, at line 3\n>>> 'timeout 00'\nno number\n";
        for engine in ["Redis 7.0.15", "Version 8.1.1"] {
            let said = format!("\n*** FATAL CONFIG FILE ERROR ({engine}) ***\n{fault}");
            assert_eq!(of(&said), Verdict::Refuses("'timeout 00': no number".to_owned()));
        }
        let undecided =
            |words: &str| Verdict::Undecided(format!("the engine ended when it was tried; it said last: {words}"));
        let overcommit = "9:M 24 Nov 2026 05:44:49.4 # WARNING Memory overcommit must be enabled!\n";
        assert_eq!(of(overcommit), undecided("WARNING Memory overcommit must be enabled!"));
        assert_eq!(of(""), undecided("nothing"));
    }

    #[test]
    fn nothing_is_tried_beside_a_server_without_room_for_both() {
        let mib = |count: u64| (count << 20).to_string();
        let v1_unlimited = "9223372036854771712".to_owned();
        for (limit, used, inactive, left) in [
            (mib(256), mib(100), mib(0), None),
            (mib(256), mib(192), mib(0), None),
            (mib(256), mib(193), mib(0), Some(63)),
            (mib(256), mib(250), mib(100), None),
            (mib(256), mib(256), mib(63), Some(63)),
            // It was lowered while the container runs.
            (mib(64), mib(100), mib(0), Some(0)),
            (mib(100), mib(10), mib(50), None),
            (v1_unlimited, mib(9000), mib(0), None),
        ] {
            let stat = format!("anon 7\ninactive_anon 5\ninactive_file {inactive}\n");
            let want =
                Memory::parse(&format!("{limit}\n"), &format!("{used}\n"), &stat, "inactive_file").unwrap().want();
            let told = left.map(|left| {
                format!("there is too little memory to try it: {left} MiB are left of the container's, and 64 MiB are asked for")
            });
            assert_eq!(want, told, "{limit} {used} {inactive}");
        }
        assert_eq!(Memory::parse("max\n", "5\n", "", "inactive_file"), None);
    }
}
