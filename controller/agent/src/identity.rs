//! Who this member is, by its nodes.conf. Pure: text to verdict.
//!
//! Redis exits with code 1 on every start when the file is cut or its own line is missing, and silently takes a new identity
//! (and every slot it finds keys for) when the file is empty (reliability.md A3). So the file is judged before the start.

use std::net::SocketAddr;

use resp::{Node, NodeId, SlotRange};

/// What nodes.conf says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no file: a member that was never started here.
    Blank,
    /// Redis would start with this identity.
    Intact(Identity),
    /// Redis would not start, or would start as somebody else.
    Damaged {
        /// What is wrong with the file, as a clause: "nodes.conf …".
        why: String,
    },
}

/// An identity as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Node ID.
    pub id: NodeId,
    /// Where it was, if its record says so.
    pub address: Option<SocketAddr>,
    /// Recorded role.
    pub role: Role,
    /// Own configuration epoch.
    pub config_epoch: u64,
    /// The newest epoch that it had heard of, or taken.
    pub current_epoch: u64,
    /// Slots it owned.
    pub slots: Vec<SlotRange>,
    /// Slots that were on their way to it, and from whom.
    pub importing: Vec<(u16, NodeId)>,
    /// Everybody else.
    pub peers: Vec<Node>,
}

/// Recorded role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A primary, with or without slots.
    Primary,
    /// A replica of this node.
    Replica(NodeId),
}

impl Identity {
    /// Whether it was a primary that owned slots.
    #[must_use]
    pub fn owned_slots(&self) -> bool {
        self.role == Role::Primary && !self.slots.is_empty()
    }

    /// Whether it was a primary without slots to which its first were on their way. What had arrived was with it and its replicas alone.
    #[must_use]
    pub fn was_given_its_first(&self) -> bool {
        self.role == Role::Primary && self.slots.is_empty() && !self.importing.is_empty()
    }

    /// Whether it was a primary that had what nobody but its replicas has.
    #[must_use]
    pub fn led(&self) -> bool {
        self.owned_slots() || self.was_given_its_first()
    }

    /// Whether it followed somebody.
    #[must_use]
    pub fn is_replica(&self) -> bool {
        matches!(self.role, Role::Replica(_))
    }

    /// Replicas of this member that the file knows.
    pub fn replicas(&self) -> impl Iterator<Item = &Node> {
        self.peers.iter().filter(|peer| peer.primary.as_ref() == Some(&self.id))
    }
}

impl Verdict {
    /// The node ID, if the file is legible.
    #[must_use]
    pub fn node_id(&self) -> Option<&NodeId> {
        match self {
            Self::Intact(identity) => Some(&identity.id),
            Self::Blank | Self::Damaged { .. } => None,
        }
    }
}

/// Judges the file's content; `None`: there is no file.
#[must_use]
pub fn judge(file: Option<&[u8]>) -> Verdict {
    let Some(bytes) = file else { return Verdict::Blank };
    match read(bytes) {
        Ok(identity) => Verdict::Intact(identity),
        Err(why) => Verdict::Damaged { why },
    }
}

fn read(bytes: &[u8]) -> Result<Identity, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("nodes.conf is empty".to_owned());
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "nodes.conf is not text".to_owned())?;
    if text.contains('\0') {
        return Err("nodes.conf contains NUL bytes".to_owned());
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    // Redis writes the epochs last: a file without them was cut, and its owner could vote twice in one epoch.
    let Some((vars, table)) = lines.split_last().filter(|(last, _)| last.starts_with("vars ")) else {
        return Err("nodes.conf is cut: its last line, the epochs, is missing".to_owned());
    };
    let current_epoch = current_epoch(vars)?;
    if !text.ends_with('\n') {
        return Err("nodes.conf is cut: its last line is not complete".to_owned());
    }
    let mut myself = None;
    let mut peers = Vec::new();
    for line in table {
        let node = Node::parse(line).map_err(|error| format!("nodes.conf is damaged: {error}"))?;
        if !node.flags.myself {
            peers.push(node);
        } else if myself.replace(node).is_some() {
            return Err("nodes.conf has two lines about itself".to_owned());
        }
    }
    let myself = myself.ok_or("nodes.conf has no line about itself")?;
    identity(myself, peers, current_epoch)
}

/// How the part of an address begins that says to which shard a node belongs (Redis 7.2 and later).
const SHARD: &str = "shard-id=";

/// The file of a former primary as that of a replica of `primary`: its own slots and marks are gone, and whom it follows is a primary
/// itself, of its shard and at the epoch that it says. As a replica it was listed at the epoch of whom it followed, and Redis 7.2 tells others that one:
/// who hears it from a primary that has become a replica takes it for the heir's, though it be lower, and the heir itself does (`clusterProcessPacket`,
/// "role switch"). A record from before that one was a replica here names the shard that it had then, and Redis 7.2 exits where a replica's shard is
/// not its primary's (`clusterLoadConfig`). `None`: the file does not name that node.
#[must_use]
pub fn following(file: &str, primary: &NodeId, epoch: u64) -> Option<String> {
    let shard = own_shard(file);
    let mut is_known = false;
    let mut text = String::with_capacity(file.len());
    for line in file.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            // `<id> <address> <flags> <primary> <ping> <pong> <epoch> <link> <slots>…` (`clusterGenNodeDescription`).
            [id, address, flags, _, ping, pong, epoch, link, ..] if is_own(flags) => {
                let flags = flags.replace("master", "slave");
                text.push_str(&[id, address, &*flags, primary.as_str(), ping, pong, epoch, link].join(" "));
            }
            [id, address, flags, _, ping, pong, _, rest @ ..] if *id == primary.as_str() => {
                is_known = true;
                let (address, flags) = (of_shard(address, shard), flags.replace("slave", "master"));
                text.push_str(
                    &[&[*id, &*address, &*flags, "-", *ping, *pong, &*epoch.to_string()], rest].concat().join(" "),
                );
            }
            // Its replicas are of its shard.
            [id, address, flags, of, rest @ ..] if *of == primary.as_str() => {
                let address = of_shard(address, shard);
                text.push_str(&[&[*id, &*address, *flags, *of], rest].concat().join(" "));
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    is_known.then_some(text)
}

fn is_own(flags: &str) -> bool {
    flags.split(',').any(|flag| flag == "myself")
}

/// The part of its own address that names the shard of this member.
fn own_shard(file: &str) -> Option<&str> {
    file.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (address, flags) = (words.next()?, words.next()?);
        is_own(flags).then_some(address)?.split(',').find(|part| part.starts_with(SHARD))
    })
}

/// An address with this shard in place of another.
fn of_shard(address: &str, shard: Option<&str>) -> String {
    let parts = address.split(',').map(|part| shard.filter(|_| part.starts_with(SHARD)).unwrap_or(part));
    parts.collect::<Vec<_>>().join(",")
}

fn current_epoch(vars: &str) -> Result<u64, String> {
    let words: Vec<&str> = vars.split_ascii_whitespace().collect();
    let epoch = match words.as_slice() {
        ["vars", "currentEpoch", current, "lastVoteEpoch", vote] if vote.parse::<u64>().is_ok() => current.parse().ok(),
        _ => None,
    };
    epoch.ok_or_else(|| "nodes.conf is damaged: its last line, the epochs, is not legible".to_owned())
}

fn identity(myself: Node, peers: Vec<Node>, current_epoch: u64) -> Result<Identity, String> {
    let mut ids: Vec<&NodeId> = peers.iter().map(|peer| &peer.id).chain([&myself.id]).collect();
    ids.sort();
    if ids.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err("nodes.conf names a node twice".to_owned());
    }
    let mut owners = vec![false; usize::from(resp::slot::SLOTS)];
    for slot in
        peers.iter().chain([&myself]).flat_map(|node| node.slots.iter().flat_map(|range| range.first..=range.last))
    {
        if owners.get_mut(usize::from(slot)).is_none_or(|owned| std::mem::replace(owned, true)) {
            return Err(format!("nodes.conf gives slot {slot} to two nodes"));
        }
    }
    let Node { id, address, flags, primary, config_epoch, mut slots, importing, .. } = myself;
    let role = match (flags.replica, primary) {
        (true, Some(primary)) => Role::Replica(primary),
        (false, None) => Role::Primary,
        (true, None) | (false, Some(_)) => return Err("nodes.conf contradicts itself about its own role".to_owned()),
    };
    slots.sort();
    Ok(Identity { id, address, role, config_epoch, current_epoch, slots, importing, peers })
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn id(last: u8) -> NodeId {
        NodeId::parse(&format!("{:040x}", u32::from(last))).unwrap()
    }

    fn file() -> String {
        format!(
            "{} 127.84.0.1:6379@16379 myself,master - 0 0 3 connected 0-5460 [7->-{}]\n\
             {} 127.84.0.2:6379@16379 slave {} 0 1 3 connected\n\
             {} 127.84.0.3:6379@16379 master - 0 1 2 connected 5461-10922\n\
             vars currentEpoch 6 lastVoteEpoch 0\n",
            id(1),
            id(3),
            id(2),
            id(1),
            id(3)
        )
    }

    fn why(text: &str) -> String {
        match judge(Some(text.as_bytes())) {
            Verdict::Damaged { why } => why,
            other => panic!("{other:?} for {text}"),
        }
    }

    #[test]
    fn an_intact_file_tells_identity_role_slots_and_peers() {
        let Verdict::Intact(identity) = judge(Some(file().as_bytes())) else { panic!() };
        assert_eq!((identity.id.clone(), identity.role.clone(), identity.config_epoch), (id(1), Role::Primary, 3));
        assert_eq!(identity.slots, vec![SlotRange { first: 0, last: 5460 }]);
        assert!(identity.owned_slots());
        assert_eq!(identity.replicas().map(|node| node.id.clone()).collect::<Vec<_>>(), vec![id(2)]);
        assert_eq!(identity.peers.len(), 2);
        assert_eq!(judge(None), Verdict::Blank);
    }

    #[test]
    fn a_former_primary_becomes_a_replica_of_its_heir_without_slots_and_marks() {
        let text = following(&file(), &id(2), 7).unwrap();
        let expected = format!(
            "{} 127.84.0.1:6379@16379 myself,slave {} 0 0 3 connected\n\
             {} 127.84.0.2:6379@16379 master - 0 1 7 connected\n\
             {} 127.84.0.3:6379@16379 master - 0 1 2 connected 5461-10922\n\
             vars currentEpoch 6 lastVoteEpoch 0\n",
            id(1),
            id(2),
            id(2),
            id(3)
        );
        assert_eq!(text, expected);
        let Verdict::Intact(identity) = judge(Some(text.as_bytes())) else { panic!() };
        assert_eq!((identity.id, identity.role), (id(1), Role::Replica(id(2))));
        assert_eq!(following(&file(), &id(9), 7), None);
    }

    /// Redis 7.2 would exit else.
    #[test]
    fn an_heir_that_its_record_has_in_another_shard_is_one_of_this_one() {
        let [old, new] = ["a", "b"].map(|digit| format!("shard-id={}", digit.repeat(40)));
        let record = file()
            .replace("127.84.0.1:6379@16379", &format!("127.84.0.1:6379@16379,,tls-port=0,{old}"))
            .replace("127.84.0.2:6379@16379 slave", &format!("127.84.0.2:6379@16379,,{new} master"))
            .replace(&format!("master {} 0 1 3", id(1)), "master - 0 1 5");
        let text = following(&record, &id(2), 7).unwrap();
        assert_eq!((text.matches(&old).count(), text.matches(&new).count()), (2, 0), "{text}");
        assert!(text.contains(&format!("127.84.0.2:6379@16379,,{old} master - 0 1 7 connected")), "{text}");
        assert!(matches!(judge(Some(text.as_bytes())), Verdict::Intact(me) if me.role == Role::Replica(id(2))));
        // One that was written by an earlier release of Redis.
        let none = record.replace(&format!(",tls-port=0,{old}"), "");
        assert_eq!(following(&none, &id(2), 7).unwrap().matches(&new).count(), 1);
    }

    #[test]
    fn a_replica_knows_its_primary_and_owns_nothing() {
        let text = format!(
            "{} 127.84.0.2:6379@16379,, myself,slave {} 0 0 3 connected\n{} 127.84.0.1:6379@16379 master - 0 0 3 connected 0-5\n\nvars currentEpoch 6 lastVoteEpoch 0\n",
            id(2),
            id(1),
            id(1)
        );
        let Verdict::Intact(identity) = judge(Some(text.as_bytes())) else { panic!() };
        assert_eq!(identity.role, Role::Replica(id(1)));
        assert!(!identity.owned_slots() && !identity.led());
    }

    #[test]
    fn a_primary_to_which_its_first_slot_is_on_its_way_leads() {
        let judged = |marks: &str| {
            let me = format!("{} 127.84.0.1:6379@16379 myself,master - 0 0 3 connected{marks}", id(1));
            let other = format!("{} 127.84.0.3:6379@16379 master - 0 1 2 connected 0-16383", id(3));
            match judge(Some(format!("{me}\n{other}\nvars currentEpoch 6 lastVoteEpoch 0\n").as_bytes())) {
                Verdict::Intact(identity) => identity,
                other => panic!("{other:?}"),
            }
        };
        let given = judged(&format!(" [7-<-{}]", id(3)));
        assert_eq!(given.importing, [(7, id(3))]);
        assert!(given.was_given_its_first() && given.led() && !given.owned_slots());
        assert!(!judged("").led());
    }

    #[test]
    fn each_kind_of_damage_is_named() {
        let file = file();
        assert_eq!(why(""), "nodes.conf is empty");
        assert_eq!(why("\n\n"), "nodes.conf is empty");
        assert_eq!(why(&file.replace("myself,", "")), "nodes.conf has no line about itself");
        let own_line_removed: String = file.lines().skip(1).map(|line| format!("{line}\n")).collect();
        assert_eq!(why(&own_line_removed), "nodes.conf has no line about itself");
        assert_eq!(why(file.trim_end()), "nodes.conf is cut: its last line is not complete");
        assert_eq!(
            why(&file.replace("lastVoteEpoch 0", "lastVote")),
            "nodes.conf is damaged: its last line, the epochs, is not legible"
        );
        assert_eq!(why(&file.replace("5461-", "5460-")), "nodes.conf gives slot 5460 to two nodes");
        assert_eq!(why("garbage\u{1}\u{2}"), "nodes.conf is cut: its last line, the epochs, is missing");
        assert_eq!(why("\0\0\0"), "nodes.conf contains NUL bytes");
        assert_eq!(judge(Some(b"\xff\xfe\x00")), Verdict::Damaged { why: "nodes.conf is not text".to_owned() });
    }

    proptest! {
        #[test]
        fn a_file_cut_anywhere_is_damaged(cut in 1usize..400) {
            let file = file();
            prop_assume!(cut < file.len());
            let damaged = matches!(judge(Some(&file.as_bytes()[..cut])), Verdict::Damaged { .. });
            prop_assert!(damaged);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = judge(Some(&bytes));
        }
    }
}
