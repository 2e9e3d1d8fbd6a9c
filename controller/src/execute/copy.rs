//! Whether a member's copy is still what the plan took it for, asked right before that is relied upon.

use plan::{Disk, NodeId, Role, Seen, Unwritten, Who};
use resp::{Connection, Info};

use super::nodes::Node;
use super::{Error, Nodes, World, refused};
use crate::probe::{Facts, disk, offset};

/// If it were restarted now, it would come back with what it holds; or nothing of this cluster would.
pub(super) async fn keeps(world: World<'_>, redis: &mut Node, who: Who) -> Result<(), Error> {
    match disk_of(world, redis.connection()?).await? {
        disk if disk.is_logged() => Ok(()),
        disk => Err(refused(lacks(who, disk))),
    }
}

/// As [`keeps`], of the only one who has what it holds: where snapshots are all that is kept its stop has to save one.
pub(super) async fn keeps_alone(world: World<'_>, redis: &mut Connection, who: Who) -> Result<(), Error> {
    match disk_of(world, redis).await? {
        Disk::Current => Ok(()),
        disk @ (Disk::Rewriting | Disk::Fails(_)) => Err(refused(lacks(who, disk))),
    }
}

/// Where a restart finds nothing again, whatever a disk has, there is nothing that it could lack.
async fn disk_of(world: World<'_>, redis: &mut Connection) -> Result<Disk, Error> {
    if !world.resolved.restart_keeps_data() {
        return Ok(Disk::Current);
    }
    let info = redis.info(&["persistence"]).await?;
    Ok(disk(&info, world.resolved.agent.append_only.keeps_every_write()))
}

/// What a disk lacks by now. Pure.
fn lacks(who: Who, disk: Disk) -> String {
    match disk {
        Disk::Fails(what @ Unwritten::Snapshot) => {
            format!("the last snapshot of {who} failed by now ({}), and its stop has to save one", what.words())
        }
        Disk::Current | Disk::Rewriting | Disk::Fails(Unwritten::Write | Unwritten::Rewrite) => {
            format!("the append-only file of {who} does not hold by now what it has in memory")
        }
    }
}

/// Its primary is who it was when it was looked at, still leads, and would survive a restart while the copy is away.
pub(super) async fn is_beside_its_primary(world: World<'_>, nodes: &Nodes, who: Who, of: NodeId) -> Result<(), Error> {
    let planned = followed(world, who);
    if planned != Some(of) {
        let was = planned.map_or_else(|| "nobody".to_owned(), |id| id.short().to_string());
        return Err(refused(format!("{who} follows {} by now, not {was}", of.short())));
    }
    let primary = seen_at(world, of)?;
    let mut redis = nodes.at(world.address(primary)?, of).await?;
    if !redis.table().await?.is_primary() {
        return Err(refused(format!("{primary}, which {who} follows, is no primary any more")));
    }
    keeps(world, &mut redis, primary).await?;
    stays(world, primary).await
}

/// Its pod is the one that was looked at, and has not begun to go. Evicted, it would look for somebody to give its role to, and find nobody who stays.
/// Asked last: what comes after it is the least.
async fn stays(world: World<'_>, who: Who) -> Result<(), Error> {
    let live = super::restart::same_pod(world, who.pod).await?;
    match live.map(|live| live.metadata.deletion_timestamp.is_some()) {
        Some(false) => Ok(()),
        Some(true) => Err(refused(format!("the pod of {who} is being deleted by now"))),
        None => Err(refused(format!("{who} has no pod"))),
    }
}

/// Whom it followed when it was looked at.
pub(super) fn followed(world: World<'_>, who: Who) -> Option<NodeId> {
    match world.probed.observed.members.get(&who.pod).map(|member| &member.seen) {
        Some(Seen::Node(node)) if node.id == who.id => match &node.role {
            Role::Replica { of, .. } => Some(*of),
            Role::Primary { .. } => None,
        },
        _ => None,
    }
}

/// The place at which a node was seen.
pub(super) fn seen_at(world: World<'_>, id: NodeId) -> Result<Who, Error> {
    let mut members = world.probed.observed.members.iter();
    let place = members.find(|(_, member)| matches!(&member.seen, Seen::Node(node) if node.id == id));
    let (pod, _) = place.ok_or_else(|| refused(format!("the primary {} is not seen", id.short())))?;
    Ok(Who { pod: *pod, id })
}

/// It is the copy that was looked at, and has lost nothing since: which copy is promoted was chosen by how far they were. A server that was
/// started anew in between has read what its disk had, which may be less.
pub(super) fn is_as_seen(facts: Option<&Facts>, info: &Info) -> Result<(), String> {
    let Some(facts) = facts else { return Err("how far its copy was is not known".to_owned()) };
    let stream = info.get("master_replid").unwrap_or_default();
    if stream != facts.replication_id {
        return Err(format!("its copy is of the history {stream} by now, not of {}", facts.replication_id));
    }
    let offset = offset(info).unwrap_or(0);
    if offset < facts.offset {
        return Err(format!("its copy is at {offset} by now, and was at {}", facts.offset));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use plan::Pod;

    use super::*;
    use crate::testing::healthy;

    #[test]
    fn a_copy_that_is_of_another_history_or_has_less_is_not_the_one_that_was_seen() {
        let probed = healthy(1, 2);
        let facts = probed.facts.get(&Pod::new(0, 1));
        let info = |stream: &str, offset: u64| {
            Info::parse(&format!("master_replid:{stream}\r\nslave_repl_offset:{offset}\r\n"))
        };
        let stream = "stream of shard 0";
        assert_eq!((is_as_seen(facts, &info(stream, 100)), is_as_seen(facts, &info(stream, 101))), (Ok(()), Ok(())));
        let table = [
            (facts, info(stream, 99), "its copy is at 99 by now, and was at 100"),
            (facts, info("other", 900), "its copy is of the history other by now, not of stream of shard 0"),
            (facts, Info::default(), "its copy is of the history  by now, not of stream of shard 0"),
            (None, info(stream, 100), "how far its copy was is not known"),
        ];
        for (facts, info, why) in table {
            assert_eq!(is_as_seen(facts, &info).unwrap_err(), why);
        }
    }
}
