//! What a run's suites carry in their environment, so that what is left of a run whose runner was killed is found by the next.

use std::{fs, os::unix::fs::MetadataExt as _};

use crate::processes::{self, Process};

/// The environment variable. What a suite starts inherits it, wherever it goes.
pub(crate) const VARIABLE: &str = "KUN_RUN";

/// Which run: at which address it is alone, and which process runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    address: String,
    /// Elsewhere the same id is another process, or none: such a runner may live.
    namespace: String,
    runner: i32,
    begun: u64,
}

impl Mark {
    /// Of this process.
    pub(crate) fn own(address: &str) -> Option<Self> {
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?.to_str()?.to_owned();
        let runner = rustix::process::getpid().as_raw_nonzero().get();
        let begun = Process::find(runner)?.begun;
        Some(Self { address: address.to_owned(), namespace, runner, begun })
    }

    /// As suites are told it.
    pub(crate) fn text(&self) -> String {
        let Self { address, namespace, runner, begun } = self;
        format!("{address} {namespace} {runner} {begun}")
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (address, namespace) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(Self { address, namespace, runner: words.next()?.parse().ok()?, begun: words.next()?.parse().ok()? })
    }

    /// Whether this is a run of the same place whose runner is none of these processes.
    fn is_left_behind(&self, own: &Self, all: &[Process]) -> bool {
        let runs = |one: &Process| one.id == self.runner && one.begun == self.begun;
        (&self.address, &self.namespace) == (&own.address, &own.namespace) && !all.iter().any(runs)
    }
}

/// Processes of this user that carry the mark of a run whose runner is dead, and what they started: redis-server writes its title over its
/// environment, and an agent is given one of its own. A keeper and what is below it tidies up by itself.
pub(crate) fn left_behind<'a>(own: &Mark, all: &'a [Process]) -> Vec<&'a Process> {
    let user = rustix::process::getuid().as_raw();
    let is_ours = |id: i32| fs::metadata(format!("/proc/{id}")).is_ok_and(|process| process.uid() == user);
    let is_left = |one: &&Process| {
        is_ours(one.id)
            && of(one.id).is_some_and(|mark| mark.is_left_behind(own, all))
            && !one.is_kept(all)
            && !processes::leads_to(all, one.id, own.runner)
    };
    let marked: Vec<&Process> = all.iter().filter(is_left).collect();
    let ids: Vec<i32> = marked.iter().map(|one| one.id).collect();
    let groups: Vec<i32> = marked.iter().map(|one| one.group).filter(|group| ids.contains(group)).collect();
    processes::of(all, &ids, &groups)
}

/// The mark that a process was started with.
fn of(id: i32) -> Option<Mark> {
    let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
    let named = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok()?;
        line.strip_prefix(VARIABLE)?.strip_prefix('=').map(str::to_owned)
    };
    Mark::read(&environment.split(|byte| *byte == 0).find_map(named)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_of_the_same_place_whose_runner_is_gone_is_left_behind() {
        let own = Mark::own("127.0.0.1:1").unwrap();
        assert_eq!(Mark::read(&own.text()), Some(own.clone()));
        assert_eq!((Mark::read(""), Mark::read("a b c 1")), (None, None));
        let all = crate::processes::all();
        let is_left = |mark: Mark| mark.is_left_behind(&own, &all);
        assert!(!is_left(own.clone()), "it lives");
        let dead = Mark { begun: own.begun + 1, ..own.clone() };
        assert!(is_left(dead.clone()), "its id was given again");
        assert!(!is_left(Mark { address: "127.0.0.1:2".to_owned(), ..dead.clone() }));
        assert!(!is_left(Mark { namespace: "pid:[1]".to_owned(), ..dead }));
    }
}
