//! Which nodes ran in this pod, and have ended. The run directory lives as long as the pod does, through restarts of its container, so what is
//! noted there ran here, and what ran here and does not run now has ended.
//!
//! Where most primaries are gone nobody can be elected, and a replica may be promoted without votes only if those processes are known to have
//! ended. That a pod has been replaced is no proof: where a machine is cut off, its pods can be deleted by force, and run on.

use std::{fs, io::Read as _, path::Path};

use resp::NodeId;

use crate::{
    identity::{self, Verdict},
    shared::Shared,
};

/// File in the run directory with the node IDs, the latest last, a line each.
const FILE: &str = "nodes-run-here";
/// So many are kept: a member has a new identity only when its volume is a new one, or was emptied.
const MOST: usize = 16;
/// Largest file that is read: a line is 41 bytes.
const MOST_BYTES: u64 = 4096;

/// No server runs in this pod: all that did have ended. Told until one of them runs again.
pub fn tell_ended(shared: &Shared) {
    let ended: Vec<String> = read(&shared.options.run_dir).iter().map(ToString::to_string).collect();
    shared.report.send_if_modified(|report| std::mem::replace(&mut report.ended, ended.clone()) != ended);
}

/// A server is about to be started on these files; one without a node ID of its own is noted once it runs.
pub fn note_start(shared: &Shared, nodes: Option<&[u8]>) {
    match identity::judge(nodes) {
        Verdict::Intact(me) => note(shared, &me.id),
        Verdict::Blank | Verdict::Damaged { .. } => {}
    }
}

/// This node runs here, or is about to.
pub fn note(shared: &Shared, id: &NodeId) {
    if !shared.note_running(id) {
        return;
    }
    let text = id.to_string();
    // Before it may run it is no longer one that has ended.
    shared.report.send_if_modified(|report| {
        let before = report.ended.len();
        report.ended.retain(|ended| *ended != text);
        report.ended.len() != before
    });
    let mut known = read(&shared.options.run_dir);
    known.retain(|other| other != id);
    known.push(id.clone());
    if let Err(error) = write(&shared.options.run_dir, &known) {
        tracing::warn!(%error, "that this node ran here is not noted: its end will not be told after a restart");
    }
}

fn read(dir: &Path) -> Vec<NodeId> {
    let mut text = String::new();
    let read = fs::File::open(dir.join(FILE)).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    text.lines().filter_map(|line| NodeId::parse(line).ok()).collect()
}

/// What was there before stays until the new one is whole.
fn write(dir: &Path, ids: &[NodeId]) -> Result<(), crate::disk::Error> {
    let kept = ids.get(ids.len().saturating_sub(MOST)..).unwrap_or_default();
    let text: String = kept.iter().map(|id| format!("{id}\n")).collect();
    crate::disk::replace(dir, FILE, text.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use crate::identity::tests::id;

    #[test]
    fn the_latest_nodes_of_a_pod_are_kept_and_what_is_illegible_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), []);
        let ids: Vec<NodeId> = (0..20).map(id).collect();
        write(dir.path(), &ids).unwrap();
        assert_eq!(read(dir.path()), ids[4..]);
        fs::write(dir.path().join(FILE), format!("{}\nhalf a li", id(7))).unwrap();
        assert_eq!(read(dir.path()), [id(7)]);
        fs::write(dir.path().join(FILE), [0xff, 0xfe]).unwrap();
        assert_eq!(read(dir.path()), []);
    }
}
