//! What a person or CI ends a run with, and the end of everything that the run has started.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, future, io,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{self, SignalKind, signal},
};

use crate::{
    mark::{self, Mark},
    processes::{self, Process},
};

/// A signal that ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupt {
    pub(crate) name: &'static str,
    number: u8,
}

const ALL: [Interrupt; 3] = [
    Interrupt { name: "SIGHUP", number: 1 },
    Interrupt { name: "SIGINT", number: 2 },
    Interrupt { name: "SIGTERM", number: 15 },
];

/// What was told to end has so long for it, and what was ended by force as well, or longer on a slow machine. Who runs tests often waits
/// no longer than ten seconds before it ends the runner by force, too, and then nobody would say what was running.
const GRACE: Duration = Duration::from_secs(3);
/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(20);

impl Interrupt {
    /// As shells have it.
    pub(crate) fn code(self) -> u8 {
        128 + self.number
    }
}

/// The signals that came.
pub(crate) struct Interrupts {
    runtime: Runtime,
    signals: Vec<(Interrupt, unix::Signal)>,
}

impl Interrupts {
    /// From now on they do not end this process by themselves. Who started it may have had it ignore some, as nohup does; these it ignores.
    pub(crate) fn listen() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let ignored = ignored(&fs::read_to_string("/proc/self/status")?);
        let heard = ALL.into_iter().filter(|one| ignored & (1 << (one.number - 1)) == 0);
        let signals = {
            let _inside = runtime.enter();
            let of = |one: Interrupt| Ok((one, signal(SignalKind::from_raw(one.number.into()))?));
            heard.map(of).collect::<io::Result<_>>()?
        };
        Ok(Self { runtime, signals })
    }

    /// Waits so long, or until the first of them comes.
    pub(crate) fn within(&mut self, wait: Duration) -> Option<Interrupt> {
        let Self { runtime, signals } = self;
        let first = future::poll_fn(|context| {
            let mut came =
                signals.iter_mut().filter_map(|(one, signal)| signal.poll_recv(context).is_ready().then_some(*one));
            came.next().map_or(Poll::Pending, Poll::Ready)
        });
        runtime.block_on(async { tokio::time::timeout(wait, first).await.ok() })
    }
}

/// The mask of proc(5).
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

/// Ends all that this process started, and the groups of the suites, gently and then by force. Returns how many do not end.
pub(crate) fn end_all(groups: &[i32]) -> usize {
    let own = getpid();
    // Whoever loses its parent from now on is found below this process.
    set_child_subreaper(Some(own)).ok();
    let own = own.as_raw_nonzero().get();
    let left = |all: &[Process]| {
        let found = processes::of(all, &[own], groups).into_iter().filter(|one| one.id != own);
        found.cloned().collect::<Vec<_>>()
    };
    end(left).1
}

/// Ends what a run whose runner was killed has left. Returns how many there were, and how many of them do not end.
pub(crate) fn end_left_behind(own: &Mark) -> (usize, usize) {
    end(|all| mark::left_behind(own, all).into_iter().cloned().collect())
}

/// Ends all of these, also those that there are meanwhile, gently and then by force. Returns how many were told to, and how many do not end.
fn end(found: impl Fn(&[Process]) -> Vec<Process>) -> (usize, usize) {
    // Whose parent has ended is not found again: each is remembered, with the moment it began, as its id may be given to another.
    let mut known = BTreeMap::<i32, u64>::new();
    let mut left = || {
        let all = processes::all();
        known.extend(found(&all).into_iter().map(|one| (one.id, one.begun)));
        let is_known = |one: &&Process| known.get(&one.id) == Some(&one.begun);
        (known.len(), all.iter().filter(is_known).map(|one| one.id).collect::<Vec<i32>>())
    };
    for signal in [Signal::TERM, Signal::KILL] {
        // How slow the machine is may have to be measured first: not before anybody is told.
        let limit = if signal == Signal::TERM { GRACE } else { GRACE * hung::stretch() };
        let begin = Instant::now();
        let mut told = BTreeSet::new();
        while begin.elapsed() < limit {
            let (known, left) = left();
            if left.is_empty() {
                return (known, 0);
            }
            send(left.into_iter().filter(|id| told.insert(*id)), signal);
            thread::sleep(LOOK);
        }
    }
    let (known, left) = left();
    (known, left.len())
}

/// Who has ended meanwhile needs no signal.
pub(crate) fn send(to: impl Iterator<Item = i32>, signal: Signal) {
    to.filter_map(Pid::from_raw).for_each(|id| {
        kill_process(id, signal).ok();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_caller_has_ignored_is_read() {
        assert_eq!(ignored("Name:\tsuites\nSigBlk:\t00\nSigIgn:\t0000000000001003\n"), 0x1003);
        assert_eq!(ignored(""), 0);
    }
}
