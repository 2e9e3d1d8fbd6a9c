//! What is waited for and what is refused, as sentences for people: each with its numbers.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::desired::Hold;
use crate::observed::{Address, NodeId, Pod, Unwritten};
use crate::plan::{Refused, Waiting};
use crate::slots::SlotSet;

/// Of a replica whose link is up.
const BEHIND: &str = "is catching up with its primary";
/// Of a replica whose link is down.
const UNLINKED: &str = "is not in sync: its link to the primary is down";

/// Milliseconds as people say them: coarse, so that a sentence does not become another one with every look.
struct Age(u64);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 / 1_000 {
            // As of a copy that nobody has ever seen to be whole.
            seconds if seconds > u64::MAX / 10_000 => f.write_str("an unknown time"),
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds @ 120..7_200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3_600),
        }
    }
}

/// What a person may do about a target that is full.
const BACK: &str = "set spec.shards back: what has moved then comes back";

/// Bytes as people say them: rounded down, so that a sentence does not become another one with every look.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 >> 10 {
            kib @ 0..1_024 => write!(f, "{} KiB", kib / 64 * 64),
            kib => write!(f, "{} MiB", kib >> 10),
        }
    }
}

/// Of a shard whose primary role has just moved.
fn rests(f: &mut fmt::Formatter<'_>, shard: u16, since_millis: u64, of_millis: u64) -> fmt::Result {
    write!(
        f,
        "the primary role of shard {shard} moved, or may have moved, {}.{} s ago; it may move again {} s after that, when Redis counts votes \
         anew",
        since_millis / 1_000,
        since_millis % 1_000 / 100,
        of_millis.div_ceil(1_000)
    )
}

/// Of a move whose target is full.
fn no_room(f: &mut fmt::Formatter<'_>, target: &Waiting) -> fmt::Result {
    let Waiting::Room { pod, from, slots, half_moved, gives, room, needs } = target else { return Ok(()) };
    // What only a restart changes comes too late for what is half moved: until that is whole nobody is restarted.
    let (what, how) = match half_moved {
        true => ("half-moved slots", "spec.memory.maxBytes or spec.memory.maxPercent, which count at once"),
        false => ("slots", "spec.memory"),
    };
    write!(
        f,
        "{slots} {what} of {from} wait for room in {pod}: it is {} below its maxmemory, {} are needed; raise it ({how}), ",
        Size(*room),
        Size(*needs)
    )?;
    // Nothing turns around in the middle, so who owns nothing has nothing to give back.
    match half_moved {
        true if !gives => f.write_str("or delete keys of these slots"),
        _ => write!(f, "delete keys, or {BACK}"),
    }
}

/// A member by its pod's name, where it is known of which cluster it is.
struct Name<'a> {
    cluster: Option<&'a str>,
    pod: Pod,
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cluster {
            Some(cluster) => write!(f, "{cluster}-{}", self.pod),
            None => write!(f, "{}", self.pod),
        }
    }
}

/// What is waited for, told where the report speaks of parameters by pods' names. All else is said beside sentences that name members
/// shortly, and names them as these do.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    reason: &'a Waiting,
    cluster: &'a str,
}

impl Waiting {
    /// As a sentence about a cluster of this name.
    #[must_use]
    pub const fn of<'a>(&'a self, cluster: &'a str) -> Told<'a> {
        Told { reason: self, cluster }
    }
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Waiting::Parameters { pod, refused } = self.reason {
            parameters(f, &Name { cluster: Some(self.cluster), pod: *pod }, *refused)
        } else {
            self.reason.fmt(f)
        }
    }
}

/// Of tables that are not all alike yet.
fn agreement(f: &mut fmt::Formatter<'_>, right: u16, of: u16, away: Option<Pod>) -> fmt::Result {
    match away {
        None => write!(f, "{right} of {of} nodes agree on who owns which slot and report the cluster as ok"),
        Some(pod) => write!(
            f,
            "{right} of the {of} nodes that answer agree on who owns which slot and report the cluster as ok; member {pod} does not answer"
        ),
    }
}

/// Of slots whose owner is gone for good.
fn lost_slots(
    f: &mut fmt::Formatter<'_>,
    id: NodeId,
    slots: u16,
    copies: &[Pod],
    former: Option<(Pod, u16)>,
) -> fmt::Result {
    let id = id.short();
    let (names, shard) = (list(copies), copies.first().map(|first| first.shard));
    match (shard, former) {
        (None, _) => write!(
            f,
            "no complete copy of {slots} slots is left: node {id}, which had them, is gone for good. They come back with its volume, under the name of \
             its claim; without it their keys are lost, and only a cluster that is deleted with its claims and created again begins empty"
        ),
        (Some(shard), None) => write!(
            f,
            "no copy of {slots} slots is left that is known to be complete: node {id}, which had them, is gone for good, and of its replicas ({names}) \
             none is known to have had everything until then. The slots come back with its volume, under the name of its claim. To go on with what such a \
             replica holds, and lose what it lacks, create a failover of shard {shard} that names it as candidate, with mode Force and acceptDataLoss"
        ),
        (Some(shard), Some((former, some))) if some < slots => write!(
            f,
            "no copy of {slots} slots is left that is known to be complete: node {id}, which had them last, is gone for good, of its replicas ({names}) \
             none is known to have had everything until then, and {former}, which had {some} of them before it, serves those. The slots come back with its \
             volume, under the name of its claim. To go on with what such a replica holds, and lose what it lacks and what {former} has taken in those, create \
             a failover of shard {shard} that names it as candidate, with mode Force and acceptDataLoss"
        ),
        (Some(shard), Some((former, _))) => write!(
            f,
            "no copy of {slots} slots is left that is known to be complete: node {id}, which had them last, is gone for good, of its replicas ({names}) \
             none is known to have had everything until then, and {former} had them before it. To go on with what {former} holds, delete the pods \
             and the claims of those replicas. To go on with what such a replica holds, create a failover of shard {shard} that names it as candidate, \
             with mode Force and acceptDataLoss"
        ),
    }
}

/// Of a receiver that is gone before it owned anything.
fn left_copies(f: &mut fmt::Formatter<'_>, id: NodeId, slots: u16, copies: &[Pod], giver: Option<Pod>) -> fmt::Result {
    let shard = copies.first().map_or(0, |first| first.shard);
    write!(f, "node {}, which owned no slot yet, is gone for good, and ", id.short())?;
    match giver {
        Some(giver) => write!(f, "what had come to it of {slots} slots of {giver}")?,
        None => f.write_str("what it may have been sent of its first slots")?,
    }
    write!(
        f,
        " is left at its replicas ({}) alone, none of which is known to have had everything until then; shard {shard} gets no slots before that is \
         decided. To go on with what such a replica holds, create a failover of shard {shard} that names it as candidate, with mode Force and \
         acceptDataLoss. To go on without it, delete the pods and the claims of those replicas",
        list(copies)
    )
}

fn list(pods: &[Pod]) -> String {
    pods.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn claimed(
    f: &mut fmt::Formatter<'_>,
    primary: NodeId,
    (replica, by): (Pod, Pod),
    places: &[Pod],
    unknown: &[Pod],
) -> fmt::Result {
    write!(
        f,
        "replica {replica} is not promoted: {by} serves the slots of its primary {}, which does not answer; as another node has its address, nothing \
         tells which of them has the later claim. ",
        primary.short()
    )?;
    if !unknown.is_empty() {
        write!(f, "First see who runs at {}, where nobody has been seen: it may be that primary. ", list(unknown))?;
    }
    if places.is_empty() {
        write!(f, "To go on with what {by} holds, delete the pod and the claim of {replica}. ")?;
    } else {
        let names = list(places);
        write!(
            f,
            "Once that primary is back ({names}), its own word counts. To go on with what {by} holds, delete the pods and the claims of {replica} and of \
             {names}. "
        )?;
    }
    write!(
        f,
        "To go on with what {replica} holds, and lose what {by} has taken since, create a failover of shard {} that names {replica} as candidate, with mode \
         Force and acceptDataLoss",
        replica.shard
    )
}

fn stale_copy(
    f: &mut fmt::Formatter<'_>,
    (shard, primary, replica): (u16, NodeId, Pod),
    (missed_millis, lag_bytes, silent_millis): (u64, u64, u64),
    others: &[Pod],
) -> fmt::Result {
    write!(
        f,
        "replica {replica} of shard {shard} is not promoted: its primary {} went on for {} after their link was lost and is at least {lag_bytes} bytes \
         ahead of it; that primary has been silent for {} and may come back with everything. To go on without it and lose those writes, create a failover \
         of shard {shard} that names {replica} as candidate, with mode Force and acceptDataLoss",
        primary.short(),
        Age(missed_millis),
        Age(silent_millis)
    )?;
    if others.is_empty() {
        return Ok(());
    }
    write!(
        f,
        "; how much other replicas lack ({}) is not known, and may be less: to go on with one of those, name that one",
        list(others)
    )
}

/// Of a member that is away, and of what it may claim.
fn claimant(f: &mut fmt::Formatter<'_>, pod: Pod, slots: u16) -> fmt::Result {
    write!(
        f,
        "member {pod} may come back with a later claim to {slots} slots that others serve: until it is back, or nothing of it is left, no slot \
         moves, and nobody leaves or is restarted"
    )
}

/// Of a member whose disk is behind its memory.
fn disk(f: &mut fmt::Formatter<'_>, pod: Pod, fails: Option<Unwritten>) -> fmt::Result {
    match fails {
        None => write!(
            f,
            "member {pod} is writing its append-only file anew, or could not switch it on; until that is over a restart would load an older data set"
        ),
        Some(what @ Unwritten::Rewrite) => write!(
            f,
            "member {pod} is writing its append-only file anew, which failed the last time ({}); until that is over a restart may load an older data \
             set. Its log says why: where the volume is full, make spec.storage.size larger; where a fork found no memory, delete its pod, as a \
             stop saves without one",
            what.words()
        ),
        Some(what @ Unwritten::Write) => write!(
            f,
            "member {pod} cannot write its append-only file ({}), so a restart would load an older data set. Its log says why; where the volume is \
             full, make spec.storage.size larger. It goes on once the file takes writes, or a replica in sync whose own file does has the role",
            what.words()
        ),
        Some(what @ Unwritten::Snapshot) => write!(
            f,
            "the last snapshot of member {pod} failed ({}), and nobody else has what the one at its stop would have to save. Its log says why: where the \
             volume is full, make spec.storage.size larger; where a fork found no memory, delete its pod, as a stop saves without one. It goes on once a \
             snapshot succeeds",
            what.words()
        ),
    }
}

/// Of a restart that goes no further.
fn parameters(f: &mut fmt::Formatter<'_>, pod: &Name<'_>, refused: bool) -> fmt::Result {
    if refused {
        write!(
            f,
            "no member is restarted while member {pod} does not use spec.config, which its engine refuses: correct spec.config, and the \
             restart goes on by itself"
        )
    } else {
        write!(f, "no other member is restarted before member {pod} shows the parameters of spec.config")
    }
}

/// Of a primary that most probably is dead, which nobody proves.
fn election(f: &mut fmt::Formatter<'_>, shard: u16, primary: NodeId, held_back: Option<(Pod, bool)>) -> fmt::Result {
    write!(f, "the primary {} of shard {shard} does not answer and is not proven dead; ", primary.short())?;
    match held_back {
        None => f.write_str("its replicas will elect one of them"),
        Some((pod, true)) => write!(
            f,
            "replica {pod} is promoted once most primaries hold it to be dead, and no other member of the shard may have more"
        ),
        Some((pod, false)) => write!(
            f,
            "replica {pod} does not stand for election (cluster-replica-no-failover), and what it lacks of that primary is not known; to \
             promote it all the same, create a failover of shard {shard} that names it as candidate, with mode Force and acceptDataLoss"
        ),
    }
}

/// Which former owner holds slots, and what ends that.
fn waits_for_former(f: &mut fmt::Formatter<'_>, pod: Pod, from: Pod, to: Pod) -> fmt::Result {
    write!(
        f,
        "slots wait on their way from {from} to {to}: member {pod}, which may have owned them before, does not answer, and may still send older copies of \
         their keys when it wakes up. It is waited for until it answers or is known to have ended: if its machine is switched off for good, delete \
         its pod with --force"
    )
}

fn unseen_copy(f: &mut fmt::Formatter<'_>, pod: Pod, instead_of: Pod) -> fmt::Result {
    write!(
        f,
        "replica {instead_of} is not promoted before it is known what member {pod}, which is not seen now, holds of its shard; to go on \
         without that member, create a failover of shard {} that names {instead_of} as candidate, with mode Force and acceptDataLoss",
        pod.shard
    )
}

/// Of a node that is gone and still listed.
fn ghost(f: &mut fmt::Formatter<'_>, id: NodeId, because_of: Pod, answers: bool) -> fmt::Result {
    write!(f, "the dead node {} is forgotten once ", id.short())?;
    if answers {
        write!(f, "member {because_of} has seen it gone")
    } else {
        write!(f, "it is known who member {because_of} is")
    }
}

/// A message of a condition is cut where it is too long, and what to do comes last.
fn few(slots: &SlotSet) -> String {
    const FEW: usize = 8;
    let first: SlotSet = slots.ranges().take(FEW).flat_map(|(first, last)| first..=last).collect();
    match slots.len() - first.len() {
        0 => first.to_string(),
        more => alloc::format!("{first} and {more} more"),
    }
}

fn former(
    f: &mut fmt::Formatter<'_>,
    (pod, keys): (Pod, u64),
    slots: &SlotSet,
    lacking: &SlotSet,
    unknown: &SlotSet,
) -> fmt::Result {
    write!(
        f,
        "member {pod} has been replaced as a primary, owns no slot, and Redis does not make it a replica because it holds {keys} keys of the \
         slots {}. ",
        few(slots)
    )?;
    if !lacking.is_empty() {
        let lacking = few(lacking);
        write!(
            f,
            "The owners of the slots {lacking} lack some of these keys: deleted there since, or held by nobody else. "
        )?;
    }
    if !unknown.is_empty() {
        let unknown = few(unknown);
        write!(f, "Whether the owners of the slots {unknown} have these keys is not known: compare first. ")?;
    }
    if lacking.is_empty() && unknown.is_empty() {
        write!(
            f,
            "The owners of these slots have all of these keys; a value that {pod} was told too late nobody else has. "
        )?;
    }
    if !lacking.is_empty() {
        write!(f, "Copy from {pod} what is wanted of them, or give up what {pod} holds: ")?;
    } else {
        write!(f, "To give up what {pod} holds: ")?;
    }
    write!(f, "delete its claim and its pod, and it comes back empty, as a replica")
}

fn twins(
    f: &mut fmt::Formatter<'_>,
    id: NodeId,
    (pod, address): (Pod, &Address),
    (other, other_address): (Option<Pod>, &Address),
    copied: Option<Pod>,
) -> fmt::Result {
    write!(f, "node {} runs twice, as member {pod} at {address} and ", id.short())?;
    match other {
        Some(other) => write!(f, "as member {other} at {other_address}")?,
        None => write!(f, "at {other_address}, where no pod of this cluster is")?,
    }
    write!(f, "; both take writes for the same slots, so nothing is done to these shards and nobody is introduced. ")?;
    match (other, copied) {
        (None, _) => {
            write!(f, "End the process at {other_address}: a pod that was deleted by force still runs on its machine")
        }
        (Some(_), Some(copied)) => write!(
            f,
            "Member {copied} was another node before: its volume is a copy of the other's. Delete the claim and the pod of member {copied}"
        ),
        (Some(other), None) => write!(
            f,
            "The volume of one is a copy of the other's: find out which of {pod} and {other}, and delete its claim and its pod"
        ),
    }
}

fn receiver(f: &mut fmt::Formatter<'_>, pod: Pod, copy: Pod) -> fmt::Result {
    let shard = copy.shard;
    write!(
        f,
        "the first slots of shard {shard} are half moved to member {pod}, which does not answer; nothing else is moved until it is back. To go on with what \
         its replica {copy} holds, create a failover of shard {shard} that names it as candidate, with mode Force and acceptDataLoss"
    )
}

fn script(f: &mut fmt::Formatter<'_>, pod: Pod, slots: u16) -> fmt::Result {
    write!(
        f,
        "member {pod} runs a script, and its server answers nothing else: its {slots} slots are served again once that has ended. To end one that has \
         written nothing, send SCRIPT KILL or FUNCTION KILL there; one that has written ends with its pod, and what neither a file on its volume nor a \
         replica has is lost then"
    )
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members { have, want, first } => {
                write!(f, "{have} of {want} members answer; the next one awaited is {first}")
            }
            Self::Start { pod } => write!(f, "member {pod} has not started yet"),
            Self::Unknown { pod, since_millis } => {
                write!(f, "member {pod} has not answered for {}; its state is not known", Age(*since_millis))
            }
            Self::Loading { pod } => write!(f, "member {pod} is loading its data set"),
            Self::Held { pod, until_seen } => {
                write!(f, "member {pod} may not start before it is known what member {until_seen} holds")
            }
            Self::Introductions { right, of } => {
                write!(f, "members are getting to know each other: {right} of {of} entries are right")
            }
            Self::Agreement { right, of, away } => agreement(f, *right, *of, *away),
            Self::Conflict { one, other, slots } => {
                write!(f, "members {one} and {other} both claim {slots} slots; the newer claim wins")
            }
            Self::Claimant { pod, slots } => claimant(f, *pod, *slots),
            Self::Sync { pod, link_up: true, lag_bytes } => {
                write!(f, "replica {pod} {BEHIND}, {lag_bytes} bytes to go")
            }
            Self::Sync { pod, link_up: false, .. } => write!(f, "replica {pod} {UNLINKED}"),
            Self::Copy { pod, instead_of } => unseen_copy(f, *pod, *instead_of),
            Self::Former { pod, from, to } => waits_for_former(f, *pod, *from, *to),
            Self::Disk { pod, fails } => disk(f, *pod, *fails),
            Self::Election { shard, primary, held_back } => election(f, *shard, *primary, *held_back),
            Self::Failover { shard, since_millis } => {
                write!(f, "the failover of shard {shard} was asked for {} ms ago and is not seen yet", since_millis)
            }
            Self::Rest { shard, since_millis, of_millis } => rests(f, *shard, *since_millis, *of_millis),
            Self::Primary { shard, slots } => {
                write!(f, "{slots} slots of shard {shard} are not served: no member that holds them answers")
            }
            Self::Receiver { pod, copy } => receiver(f, *pod, *copy),
            Self::Script { pod, slots } => script(f, *pod, *slots),
            Self::Leftover { pod, keys } => {
                write!(
                    f,
                    "member {pod} owns no slot but still holds {keys} keys; it becomes a replica once Redis has dropped them"
                )
            }
            Self::Approval { shard, pod } => {
                write!(f, "the hand-over of primary {pod} of shard {shard} waits for approval (redis.kun.io/approve)")
            }
            Self::Parameters { pod, refused } => parameters(f, &Name { cluster: None, pod: *pod }, *refused),
            Self::Secret => f.write_str(
                "no member is restarted before the Secret that every new pod needs has a password that can be used",
            ),
            Self::Hold { hold: Hold::Paused, slots } => {
                write!(f, "{slots} slots still have to move; spec.migration.paused holds them")
            }
            Self::Hold { hold: Hold::Backup { name }, slots } => {
                write!(f, "{slots} slots still have to move; the backup {name}, which has not ended, holds them")
            }
            Self::Room { .. } => no_room(f, self),
            Self::Counting { pod, slots } => {
                write!(f, "it is not counted yet whether member {pod} holds keys of {slots} slots that are not its own")
            }
            Self::Terminating { pod } => {
                write!(
                    f,
                    "member {pod} is being stopped because its pod is being deleted; a new pod will take its place"
                )
            }
            Self::Leaving { pod } => write!(f, "member {pod} is leaving and its pod is still there"),
            Self::Ghost { id, because_of, answers } => ghost(f, *id, *because_of, *answers),
        }
    }
}

fn apart(f: &mut fmt::Formatter<'_>, pod: Pod, id: NodeId, slots: u16, is_unsure: bool) -> fmt::Result {
    write!(
        f,
        "member {pod} (node {}) and other members do not know each other, and both claim {slots} slots: volumes of a cluster of before are among \
         theirs. They are not introduced, as Redis would empty one of the two. ",
        id.short()
    )?;
    f.write_str(if is_unsure {
        "Neither side is the larger one for certain, so nothing is done: find out which members clients use, and put the claims of the others away"
    } else {
        "More members are on the other side, so this one is left alone: find out what it holds, and put its claim away"
    })
}

fn no_quorum(
    f: &mut fmt::Formatter<'_>,
    (alive, refuse, of): (u16, u16, u16),
    (shard, primary, replica): (u16, NodeId, Pod),
    unproven: &[(NodeId, Option<Pod>)],
) -> fmt::Result {
    let name = |(id, place): &(NodeId, Option<Pod>)| match place {
        Some(pod) => alloc::format!("member {pod} (node {})", id.short()),
        None => alloc::format!("node {} of shard {shard}, whose pod is another by now", id.short()),
    };
    let unproven: Vec<String> = unproven.iter().map(name).collect();
    match refuse {
        0 => write!(f, "quorum lost: {alive} of {of} primaries can vote for replica {replica}")?,
        _ => write!(
            f,
            "{alive} of {of} primaries answer, and {refuse} of these would refuse replica {replica} their votes, as they have heard of a later claim of its \
             primary than it has"
        )?,
    }
    write!(
        f,
        ", so it is not elected in place of {}, the primary of shard {shard}; and without votes it is not promoted, as nobody says that these have \
         ended, or follow that primary still: {}. If you know that none of them runs any more (on a machine that is cut off, say), create a failover of shard \
         {shard} that names {replica} as candidate, with mode Force and acceptDataLoss",
        primary.short(),
        unproven.join(", ")
    )
}

fn other_primary(
    f: &mut fmt::Formatter<'_>,
    shard: u16,
    from: NodeId,
    primary: NodeId,
    place: Option<Pod>,
) -> fmt::Result {
    let (from, primary) = (from.short(), primary.short());
    write!(
        f,
        "the failover was asked for while node {from} was the primary of shard {shard}, which is node {primary} by now"
    )?;
    place.map_or(Ok(()), |pod| write!(f, " (member {pod})"))?;
    write!(f, "; to go on without that one, create it anew")
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger { seen_by, id, address, slots } => write!(
                f,
                "member {seen_by} knows node {} at {address} with {slots} slots, which is no pod of this cluster; it is neither joined nor forgotten",
                id.short()
            ),
            Self::Twins { id, pod, address, other, other_address, copied } => {
                twins(f, *id, (*pod, address), (*other, other_address), *copied)
            }
            Self::RunsAlready { pod, id: _, reason } => write!(f, "member {pod} is not started: {reason}"),
            Self::Copied { pod, id, of: (of, address) } => write!(
                f,
                "member {pod} is not started: its node {} is that of member {of}, which runs at {address} in its own pod; started here as well, both would \
                 take writes for the same slots. The volume here is a copy of member {of}'s: delete the claim and the pod of member {pod}, and nothing of \
                 member {of}",
                id.short()
            ),
            Self::Apart { pod, id, slots, is_unsure } => apart(f, *pod, *id, *slots, *is_unsure),
            Self::Former { pod, keys, slots, lacking, unknown } => former(f, (*pod, *keys), slots, lacking, unknown),
            Self::NoQuorum { alive, refuse, of, shard, primary, replica, unproven } => {
                no_quorum(f, (*alive, *refuse, *of), (*shard, *primary, *replica), unproven)
            }
            Self::LostSlots { id, slots, copies, former } => lost_slots(f, *id, *slots, copies, *former),
            Self::LeftCopies { id, slots, copies, giver } => left_copies(f, *id, *slots, copies, *giver),
            Self::StaleCopy { shard, primary, replica, missed_millis, lag_bytes, silent_millis, others } => {
                let missed = (*missed_millis, *lag_bytes, *silent_millis);
                stale_copy(f, (*shard, *primary, *replica), missed, others)
            }
            Self::Claimed { primary, replica, by, places, unknown } => {
                claimed(f, *primary, (*replica, *by), places, unknown)
            }
            Self::OnlyCopy { pod, keys } => {
                write!(
                    f,
                    "restarting member {pod} would lose {keys} keys: it is its shard's only copy and nothing is kept on disk"
                )
            }
            Self::Held { pod, reason } => write!(f, "member {pod} refuses to start: {reason}"),
            Self::NoSuchShard { shard, shards } => {
                write!(f, "there is no shard {shard}: the cluster has {shards}, counted from 0")
            }
            Self::NoCandidate { shard, candidate: Some(pod) } => {
                write!(f, "member {pod} cannot become the primary of shard {shard}: it is no replica of it")
            }
            Self::NoCandidate { shard, candidate: None } => {
                write!(f, "shard {shard} has no replica that could become its primary")
            }
            Self::OtherPrimary { shard, from, primary, place } => other_primary(f, *shard, *from, *primary, *place),
            Self::NotInStandalone => write!(f, "a standalone server has no shards, replicas or failover"),
            Self::NoShards => write!(f, "a cluster needs at least one shard"),
        }
    }
}
