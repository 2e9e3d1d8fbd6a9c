//! A new configuration is tried by the engine itself before anybody relies on it. I/O around pure choices.
//!
//! A throw-away process of the pod's own server, within the pod's own limits, reads the directives that the next start would read, but for
//! those by which members meet and find files (`LEFT_OUT`, `cluster-*`): it listens on a socket in a directory in memory, has no data,
//! joins nobody and knows no password. It is asked what it understood, and killed.

use std::{
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
    last_words::{last_about, last_words},
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
/// The first to go, should the container's memory not do for both.
const OOM_FIRST: &str = "1000";

/// What came of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The engine starts with it and shows what was asked for.
    Takes,
    /// It does not, in its own words.
    Refuses(String),
    /// Nobody knows: the process could not be had, or did not answer in time.
    Undecided(String),
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
        Answered::Shows(shown) => match unlike(wanted, &shown).next() {
            None => Verdict::Takes,
            Some((name, shows)) => {
                let value = wanted.get(name).map(String::as_str).unwrap_or_default();
                let why = last_about(said, name).map_or_else(|| format!("it makes {shows:?} of it"), str::to_owned);
                Verdict::Refuses(format!("{name} {value}: {why}"))
            }
        },
        Answered::Ended => Verdict::Refuses(last_words(said).unwrap_or_else(|| "it ends without a word".to_owned())),
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
        let told = "maxclients 1000000: maxclients has been reduced to 19968";
        assert_eq!(of("19968", log), Verdict::Refuses(told.to_owned()));
        assert_eq!(of("19968", ""), Verdict::Refuses("maxclients 1000000: it makes \"19968\" of it".to_owned()));
        let ended = judge(Answered::Ended, &wanted, ">>> nothing\nlast line\n");
        assert_eq!(ended, Verdict::Refuses("last line".to_owned()));
        // Valkey takes some that have no effect on it, and shows them to nobody.
        assert_eq!(judge(Answered::Shows(Parameters::new()), &wanted, ""), Verdict::Takes);
        assert!(matches!(judge(Answered::Nothing, &wanted, ""), Verdict::Undecided(_)));
    }
}
