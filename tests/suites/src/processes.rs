//! The processes of this machine, as proc(5) shows them.

use std::{collections::BTreeSet, fs};

/// One that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: i32,
    parent: i32,
    pub(crate) group: i32,
    /// In ticks since the machine was started: an id is given again, an id of one moment is not.
    pub(crate) begun: u64,
    /// Of processor time, with what its children used that it has waited for.
    ticks: u64,
    /// It ends a cluster and tidies up as soon as the test that started it is gone.
    is_keeper: bool,
}

impl Process {
    /// The one of this id, if it has not ended.
    pub(crate) fn find(id: i32) -> Option<Self> {
        read(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?, "")
    }

    /// Whether it or what it descends from is a keeper.
    pub(crate) fn is_kept(&self, all: &[Self]) -> bool {
        self.lineage(all).any(|one| one.is_keeper)
    }

    /// It, its parent, and so on.
    fn lineage<'a>(&'a self, all: &'a [Self]) -> impl Iterator<Item = &'a Self> {
        let parent = |one: &&'a Self| all.iter().find(|other| other.id == one.parent);
        // A process that was started meanwhile may have the id of one that ended: no chain is longer than there are processes.
        std::iter::successors(Some(self), parent).take(all.len())
    }
}

/// The script of a test's cluster.
const KEEPER: &str = "tests/cluster/keep.sh";

/// All there are at this moment.
pub(crate) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        read(id, &stat, &String::from_utf8_lossy(&command))
    };
    entries.filter_map(process).collect()
}

/// `stat` is `1 (name) R 0 1 …`; the name may hold anything.
fn read(id: i32, stat: &str, command: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    let (parent, group) = (fields.get(1)?.parse().ok()?, fields.get(2)?.parse().ok()?);
    let begun = fields.get(19)?.parse().ok()?;
    Some(Process { id, parent, group, begun, ticks, is_keeper: command.contains(KEEPER) })
}

/// Whether the process `id` is `ancestor`, or descends from it.
pub(crate) fn leads_to(all: &[Process], ancestor: i32, id: i32) -> bool {
    all.iter().filter(|one| one.id == id).any(|one| one.lineage(all).any(|one| one.id == ancestor))
}

/// What is or descends from one of these, or is in one of these groups; a keeper and what is below it is left alone.
pub(crate) fn of<'a>(all: &'a [Process], ancestors: &[i32], groups: &[i32]) -> Vec<&'a Process> {
    let mut found = BTreeSet::from_iter(ancestors.iter().copied());
    loop {
        let before = found.len();
        let more = all.iter().filter(|one| !one.is_keeper);
        let more = more.filter(|one| found.contains(&one.parent) || groups.contains(&one.group));
        let more: Vec<i32> = more.map(|one| one.id).collect();
        found.extend(more);
        if found.len() == before {
            return all.iter().filter(|one| found.contains(&one.id)).collect();
        }
    }
}

/// Seconds of processor time that they have used.
pub(crate) fn seconds(of: &[&Process]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "ticks of a run are few")]
    let (ticks, per_second) =
        (of.iter().map(|one| one.ticks).sum::<u64>() as f64, rustix::param::clock_ticks_per_second() as f64);
    ticks / per_second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_suite_started_is_found_wherever_it_went() {
        let one = |id, parent, group| Process { id, parent, group, begun: 0, ticks: 0, is_keeper: false };
        let keeper = Process { is_keeper: true, ..one(13, 10, 13) };
        // A suite, its child, one that made a group of its own, a keeper with its child, an orphan, and others.
        let all = [one(14, 12, 14), one(10, 5, 10), one(11, 10, 10), one(12, 11, 12), keeper, one(15, 13, 13)];
        let others = [one(16, 1, 10), one(5, 1, 5), one(20, 1, 5)];
        let all = [all.as_slice(), others.as_slice()].concat();
        let ids = |found: Vec<&Process>| found.iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(of(&all, &[10], &[10])), [14, 10, 11, 12, 16]);
        assert_eq!(ids(of(&all, &[5], &[10])), [14, 10, 11, 12, 16, 5]);
        assert_eq!([leads_to(&all, 10, 14), leads_to(&all, 14, 14), leads_to(&all, 14, 10)], [true, true, false]);
        let kept = all.iter().filter(|one| one.is_kept(&all));
        assert_eq!(kept.map(|one| one.id).collect::<Vec<_>>(), [13, 15]);
    }

    #[test]
    fn a_process_is_read_whatever_its_name_and_one_that_ended_is_none() {
        let stat = |state: &str| format!("7 (a) R (b) {state} 3 5 1 0 -1 0 0 0 0 0 10 20 30 40 20 0 1 0 9 0 0");
        let process = |is_keeper| Process { id: 7, parent: 3, group: 5, begun: 9, ticks: 100, is_keeper };
        assert_eq!(read(7, &stat("S"), "redis-server"), Some(process(false)));
        assert_eq!(read(7, &stat("S"), "bash\0/w/tests/cluster/keep.sh\x003"), Some(process(true)));
        assert_eq!(read(7, &stat("Z"), ""), None);
    }
}
