//! Rows: a layout, what is wanted, and the whole plan. A layout names each member and what was found there:
//! `P0-99` a primary with slots, `r0-0` a synced replica of that member, `r0-0~` one that is not, `P` an empty primary; `x` stopped, `-`
//! absent, `?` unknown, `s` starting, `H` held without data, `Hd` held with data, `Hn` held without data or identity, `Hdn` with data and
//! without identity. `x:P0-99` says what the others' tables still say of a member that does not answer. `!` at the end: outdated; then `*`:
//! no site has been given to it; then `@a`: it runs at site a.

mod apart;
mod heirs;
mod moves;
mod orders;
mod quorum;
mod receiver;
mod restart;
mod spread;

use std::collections::BTreeMap;

use plan::{
    Desired, Disk, FailoverHow, FailoverRequest, Gap, Health, Limits, Member, Node, NodeId, Observed, Open, Peer,
    PeerRole, Pod, Role, Seen, Site, SlotSet, Stands, Waiting, goal,
};

fn id(pod: Pod) -> NodeId {
    let mut bytes = [0; 20];
    bytes[0] = u8::try_from(pod.shard).unwrap();
    bytes[1] = u8::try_from(pod.ordinal).unwrap();
    NodeId::from_bytes(bytes)
}

fn pod(text: &str) -> Pod {
    let (shard, ordinal) = text.split_once('-').unwrap();
    Pod::new(shard.parse().unwrap(), ordinal.parse().unwrap())
}

fn role(text: &str) -> Role {
    if let Some(slots) = text.strip_prefix('P') {
        return Role::Primary { slots: SlotSet::parse(slots).unwrap() };
    }
    let (synced, misled) = (!text.ends_with(['~', '^']), text.ends_with('^'));
    let of = id(pod(text.strip_prefix('r').unwrap().trim_end_matches(['~', '^'])));
    Role::Replica {
        of,
        synced,
        link_up: synced,
        misled,
        offset: 10,
        lag_bytes: 0,
        gap: Gap::default(),
        stands: Stands::ByItself,
    }
}

/// A layout in which every table is right about everybody, as far as the words go.
fn layout(text: &str) -> Observed {
    let members: Vec<(Pod, &str)> =
        text.split_whitespace().collect::<Vec<_>>().chunks(2).map(|pair| (pod(pair[0]), pair[1])).collect();
    let mut lines: BTreeMap<NodeId, Peer> = BTreeMap::new();
    for (pod, word) in &members {
        let word = word.split_once('@').map_or(*word, |(word, _)| word).trim_end_matches('*').trim_end_matches('!');
        let (alive, what) = match word.split_once(':') {
            Some((_, what)) => (false, role(what)),
            None if word.starts_with(['P', 'r']) => (true, role(word)),
            None => continue,
        };
        let what = match what {
            Role::Primary { slots } => PeerRole::Primary { slots },
            Role::Replica { of, .. } => PeerRole::Replica { of },
        };
        lines.insert(id(*pod), peer(*pod, what, alive));
    }
    let seen = |pod: Pod, word: &str| match word.split(':').next().unwrap() {
        "x" => Seen::Stopped,
        "-" => Seen::Absent,
        "?" => Seen::Unknown { since_millis: 2_000 },
        "s" => Seen::Starting,
        held if held.starts_with('H') => Seen::Held {
            holds_data: held.contains('d'),
            id: (!held.contains('n')).then(|| id(pod)),
            reason: "it was told to".to_owned(),
        },
        word => Seen::Node(Box::new(node(pod, role(word), &lines))),
    };
    let members = members.iter().map(|(pod, word)| {
        let (word, site) = word.split_once('@').unwrap_or((*word, ""));
        let site = if site.is_empty() { Site::Unknown } else { Site::At(site.to_owned()) };
        let site = if word == "-" || word.ends_with('*') { Site::Nowhere } else { site };
        let word = word.trim_end_matches('*');
        let (outdated, word) = (word.ends_with('!'), word.trim_end_matches('!'));
        let last_id = (word != "-" && word != "Hdn" && word != "Hn").then(|| id(*pod));
        (
            *pod,
            Member { outdated, terminating: false, last_id, site, seen: seen(*pod, word), waits: false, stuck: false },
        )
    });
    Observed { members: members.collect(), ..Observed::default() }
}

fn peer(pod: Pod, role: PeerRole, alive: bool) -> Peer {
    let health = if alive { Health::Ok } else { Health::Failed };
    let epoch = u64::from(pod.shard) + 1;
    Peer { address: pod.to_string(), role, health, connected: alive, handshake: false, noaddr: false, epoch }
}

fn node(pod: Pod, role: Role, lines: &BTreeMap<NodeId, Peer>) -> Node {
    Node {
        id: id(pod),
        address: pod.to_string(),
        keys: match &role {
            Role::Primary { slots } if slots.is_empty() => 0,
            Role::Primary { .. } | Role::Replica { .. } => 7,
        },
        role,
        open: BTreeMap::new(),
        foreign_keys: BTreeMap::new(),
        uncounted: SlotSet::EMPTY,
        compared: BTreeMap::new(),
        leaving: BTreeMap::new(),
        bytes: 0,
        epoch: u64::from(pod.shard) + 1,
        current_epoch: u64::from(pod.shard) + 1,
        state_ok: true,
        loading: false,
        room: None,
        disk: Disk::Current,
        node_timeout_millis: 5_000,
        peers: lines.iter().filter(|(other, _)| **other != id(pod)).map(|(id, peer)| (*id, peer.clone())).collect(),
    }
}

fn at<'a>(observed: &'a mut Observed, place: &str) -> &'a mut Node {
    match &mut observed.members.get_mut(&pod(place)).unwrap().seen {
        Seen::Node(node) => node,
        other => panic!("{place} is {other:?}"),
    }
}

fn told(desired: &Desired, observed: &Observed) -> Vec<String> {
    let plan = plan::plan(desired, observed, &Limits::default());
    let unmet = goal::unmet(desired, observed);
    assert_eq!(plan.is_satisfied(), unmet.is_empty(), "{plan:?} {unmet:?}");
    let steps = plan.steps.iter().map(ToString::to_string);
    let waits = plan.waiting.iter().map(|reason| format!("waits: {reason}"));
    steps.chain(waits).chain(plan.refused.iter().map(|reason| format!("refuses: {reason}"))).collect()
}

/// One row.
fn row(desired: &Desired, text: &str, expected: &[&str]) {
    let told = told(desired, &layout(text));
    assert_eq!(told, expected, "{text}");
}

const THREE: &str = "0-0 P0-5460 0-1 r0-0 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0";

/// Its primary's pod was replaced before it got its first slot, and lost its volume: nobody would ever vote for one of them.
#[test]
fn replicas_of_a_gone_primary_without_slots_get_a_primary_again() {
    let told_of = |change: fn(&mut Node)| {
        let mut observed = layout("0-0 P0-8191 0-1 r0-0 1-0 P8192-16383 1-1 r1-0 2-0 r2-9~ 2-1 r2-9~");
        let gone = id(pod("2-9"));
        let line = Peer { noaddr: true, ..peer(pod("2-9"), PeerRole::Primary { slots: SlotSet::EMPTY }, false) };
        for place in ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"] {
            at(&mut observed, place).peers.insert(gone, line.clone());
        }
        for place in ["2-0", "2-1"] {
            at(&mut observed, place).keys = 0;
        }
        change(at(&mut observed, "2-1"));
        told(&Desired::cluster(3, 1), &observed).remove(0)
    };
    let promoted = "promote 2-0 in place of the dead primary 02090000 without votes, as nobody could be elected there";
    assert_eq!(told_of(|_| {}), promoted);
    assert_ne!(told_of(|other| other.keys = 1), promoted, "whoever holds a key may have it from where it is owned");
    let owns = |other: &mut Node| {
        let line = other.peers.get_mut(&id(pod("2-9"))).unwrap();
        line.role = PeerRole::Primary { slots: SlotSet::range(0, 1) };
    };
    assert_ne!(told_of(owns), promoted, "somebody says that it owned slots");
}

/// Before, they were said to be of the first shard, which has its primary.
#[test]
fn slots_that_no_primary_can_take_are_told_with_the_shard_that_has_none() {
    let told = told(&Desired::cluster(2, 1), &layout("0-0 P0-8191 0-1 r0-0 1-0 r9-9~ 1-1 r9-9~"));
    let unserved = "waits: 8192 slots of shard 1 are not served: no member that holds them answers";
    assert!(told.contains(&unserved.to_owned()), "{told:?}");
}

#[test]
fn what_is_as_wanted_is_left_alone() {
    row(&Desired::cluster(3, 1), THREE, &[]);
    row(&Desired::cluster(1, 0), "0-0 P0-16383", &[]);
}

/// Before, it was refused for ever where its shard was none of the cluster any more.
#[test]
fn what_a_held_member_has_is_set_aside_once_every_slot_is_served() {
    row(
        &Desired::cluster(3, 1),
        &format!("{THREE} 3-0 Hdn"),
        &["let 3-0 start blank, its files set aside", "remove shard 3 with its 1 members"],
    );
}

#[test]
fn a_primary_that_is_proven_dead_is_replaced_by_a_synced_replica() {
    let wanted = Desired::cluster(3, 1);
    let with = |first: &str| THREE.replacen("P0-5460", first, 1);
    let promote = "promote 0-1 in place of the dead primary 00000000";
    let start = "waits: member 0-0 has not started yet";
    row(&wanted, &with("x:P0-5460"), &[promote, start]);
    row(&wanted, &with("-:P0-5460"), &[promote, start]);
    let elect = "waits: the primary 00000000 of shard 0 does not answer and is not proven dead; its replicas will elect one of them";
    row(&wanted, &with("s:P0-5460"), &[start, elect]);
    row(&wanted, &with("?:P0-5460"), &["waits: member 0-0 has not answered for 2 s; its state is not known", elect]);
}

#[test]
fn a_replica_that_is_not_synced_is_never_promoted() {
    let text = THREE.replacen("P0-5460", "x:P0-5460", 1).replacen("r0-0", "r0-0~", 1);
    let unserved = "waits: 5461 slots of shard 0 are not served: no member that holds them answers";
    row(&Desired::cluster(3, 1), &text, &["waits: member 0-0 has not started yet", unserved]);
    let mut asked = Desired::cluster(3, 1);
    let from = id(pod("0-0"));
    asked.failover = Some(FailoverRequest {
        shard: 0,
        from,
        candidate: None,
        how: FailoverHow::Coordinated,
        accept_data_loss: false,
    });
    row(
        &asked,
        &THREE.replacen("r0-0", "r0-0~", 1),
        &["waits: replica 0-1 is not in sync: its link to the primary is down"],
    );
}

#[test]
fn a_person_may_order_a_failover_without_proof_of_death() {
    let mut wanted = Desired::cluster(3, 1);
    let from = id(pod("0-0"));
    wanted.failover =
        Some(FailoverRequest { shard: 0, from, candidate: None, how: FailoverHow::Force, accept_data_loss: false });
    row(
        &wanted,
        &THREE.replacen("P0-5460", "?:P0-5460", 1),
        &[
            "promote 0-1 in place of the dead primary 00000000",
            "waits: member 0-0 has not answered for 2 s; its state is not known",
        ],
    );
    // It answers after all: then nothing has to be lost.
    row(&wanted, THREE, &["hand the primary role over from 00000000 to 0-1"]);
}

#[test]
fn a_held_member_comes_back_only_where_nothing_is_lost_by_it() {
    let wanted = Desired::cluster(3, 1);
    let with = |first: &str, second: &str| THREE.replacen("P0-5460", first, 1).replacen("r0-0", second, 1);
    let unserved = "waits: 5461 slots of shard 0 are not served: no member that holds them answers";
    let promote = "promote 0-1 in place of the dead primary 00000000";
    // An empty owner waits for its replica to take over, and comes back as it was only if nobody has anything.
    row(
        &wanted,
        &with("H:P0-5460", "r0-0"),
        &[promote, "waits: member 0-0 may not start before it is known what member 0-1 holds"],
    );
    row(
        &wanted,
        &with("H:P0-5460", "H:r0-0"),
        &["let 0-0 start with its files as they are", "let 0-1 start with its files as they are", unserved],
    );
    row(
        &wanted,
        &with("H:P0-5460", "?:r0-0"),
        &[
            "waits: member 0-0 may not start before it is known what member 0-1 holds",
            "waits: member 0-1 has not answered for 2 s; its state is not known",
            unserved,
        ],
    );
    // Data comes back first.
    row(
        &wanted,
        &with("H:P0-5460", "Hd:r0-0"),
        &[
            "let 0-1 start with its files as they are",
            "waits: member 0-0 may not start before it is known what member 0-1 holds",
            unserved,
        ],
    );
    // The only copy is never started blank.
    row(
        &wanted,
        &with("Hdn:P0-5460", "Hn"),
        &[
            "waits: member 0-1 may not start before it is known what member 0-0 holds",
            unserved,
            "refuses: member 0-0 refuses to start: it was told to",
        ],
    );
    // Where the shard is served, a member without data starts anew.
    let ghost = "waits: the dead node 00010000 is forgotten once it is known who member 0-1 is";
    let told = told(&wanted, &layout(&with("P0-5460", "H:r0-0")));
    assert_eq!(told[..2], ["let 0-1 start blank, its files set aside", ghost]);
}

/// Before, it was told to start at every look, which its agent refuses while its disk is full, and nobody else was served meanwhile.
#[test]
fn a_member_whose_agent_takes_no_release_is_told_of_and_replaced() {
    let wanted = Desired::cluster(3, 1);
    let mut observed = layout(&THREE.replacen("0-0 P", "0-0 Hd:P", 1));
    observed.unsettled.insert(pod("0-0"));
    let promotes = "promote 0-1 in place of the dead primary 00000000";
    assert_eq!(told(&wanted, &observed), [promotes, "refuses: member 0-0 refuses to start: it was told to"]);
    // Nor is it started beside that where its agent would.
    observed.unsettled.clear();
    assert_eq!(told(&wanted, &observed), [promotes]);
    observed.failovers_refused.insert(0, 100);
    assert!(told(&wanted, &observed).contains(&"let 0-0 start with its files as they are".to_owned()));
}

#[test]
fn an_unknown_member_is_neither_replaced_nor_removed() {
    let unknown = "waits: member 0-1 has not answered for 2 s; its state is not known";
    let text = THREE.replacen("r0-0", "?:r0-0", 1);
    let ghost = "waits: the dead node 00010000 is forgotten once it is known who member 0-1 is";
    let agree = "waits: 5 of the 5 nodes that answer agree on who owns which slot and report the cluster as ok; member 0-1 does not answer";
    row(&Desired::cluster(3, 1), &text, &[unknown, ghost, agree]);
    let keep = told(&Desired::cluster(3, 0), &layout(&text));
    assert!(!keep.iter().any(|line| line.contains("shard 0")), "{keep:?}");
    assert!(keep.iter().any(|line| line == "remove 1 members of shard 1, 1 stay"), "{keep:?}");
}

#[test]
fn a_member_never_follows_a_lead_that_it_does_not_know_as_one() {
    let mut observed = layout("0-0 P0-16383 0-1 P");
    let line = PeerRole::Replica { of: id(pod("0-1")) };
    at(&mut observed, "0-1").peers.get_mut(&id(pod("0-0"))).unwrap().role = line;
    let told = told(&Desired::cluster(1, 1), &observed);
    assert_eq!(told, ["waits: 1 of 2 nodes agree on who owns which slot and report the cluster as ok"]);
    row(&Desired::cluster(1, 1), "0-0 P0-16383 0-1 P", &["make 0-1 a replica of 0-0"]);
}

#[test]
fn nothing_is_created_over_members_that_are_not_seen() {
    row(
        &Desired::cluster(1, 1),
        "0-0 P 0-1 ?",
        &[
            "waits: member 0-1 has not answered for 2 s; its state is not known",
            "waits: 1 of 2 members answer; the next one awaited is 0-1",
        ],
    );
}

#[test]
fn a_replica_that_connects_to_where_its_primary_was_is_told_again_whom_it_follows() {
    let text = THREE.replacen("r2-0", "r2-0^", 1);
    row(&Desired::cluster(3, 1), &text, &["make 2-1 a replica of 2-0"]);
    let mut observed = layout(&text);
    at(&mut observed, "2-1").peers.get_mut(&id(pod("2-0"))).unwrap().address = "127.0.0.9:6379".to_owned();
    let told = told(&Desired::cluster(3, 1), &observed);
    assert_eq!(told[0], "introduce 2-1 at 2-1 to 2-0", "where the primary is comes first");
}

/// Before, whoever had lost its replica as well had one copy only, for as long as the other shard was lost.
#[test]
fn replicas_are_made_in_other_shards_while_one_is_lost() {
    let wanted = Desired::cluster(3, 1);
    let text = "0-0 P0-5460 0-1 P 1-0 x:P5461-10922 1-1 r1-0~ 2-0 P10923-16383 2-1 r2-0^";
    let start = "waits: member 1-0 has not started yet";
    let lost = "waits: 5462 slots of shard 1 are not served: no member that holds them answers";
    let (first, misled) = ("make 0-1 a replica of 0-0", "make 2-1 a replica of 2-0");
    row(&wanted, text, &[first, misled, start, lost]);
    // It may have what is left of that one.
    row(&wanted, &text.replacen("0-1 P", "0-1 r1-0~", 1), &[misled, start, lost]);
    let back = text.replacen("x:P5461-10922", "P5461-10922", 1);
    assert_eq!(told(&wanted, &layout(&back))[..2], [first, misled]);
}

#[test]
fn a_failover_is_carried_out_in_another_shard_than_the_lost_one() {
    let text = "0-0 P0-5460 0-1 r0-0 1-0 x:P5461-10922 1-1 r1-0~ 2-0 P10923-16383 2-1 r2-0";
    let start = "waits: member 1-0 has not started yet";
    let lost = "waits: 5462 slots of shard 1 are not served: no member that holds them answers";
    let mut wanted = Desired::cluster(3, 1);
    let (from, how) = (id(pod("2-0")), FailoverHow::Coordinated);
    wanted.failover = Some(FailoverRequest { shard: 2, from, candidate: None, how, accept_data_loss: false });
    row(&wanted, text, &["hand the primary role over from 02000000 to 2-1", start, lost]);
    let mut half_moved = layout(text);
    at(&mut half_moved, "2-0").open.insert(16_000, Open::Migrating(id(pod("1-0"))));
    assert_eq!(told(&wanted, &half_moved), [start, lost]);
    // Both would ask for the same votes.
    let unknown = "waits: member 1-0 has not answered for 2 s; its state is not known";
    let elect = "waits: the primary 01000000 of shard 1 does not answer and is not proven dead; its replicas will elect one of them";
    let elected = text.replacen("x:P", "?:P", 1).replacen("r1-0~", "r1-0", 1);
    row(&wanted, &elected, &[unknown, elect]);
}

#[test]
fn the_short_timeout_of_creation_ends_where_the_living_are_taken_for_dead() {
    let wanted = Desired::cluster(3, 0);
    let mut observed = layout("0-0 P0-5460 1-0 P5461-10922 2-0 P10923-16383");
    for place in ["0-0", "1-0", "2-0"] {
        let node = at(&mut observed, place);
        (node.keys, node.node_timeout_millis) = (0, 500);
    }
    let timeouts = |observed: &Observed| {
        let steps = plan::plan(&wanted, observed, &Limits::default()).steps;
        steps.iter().map(ToString::to_string).filter(|step| step.contains("timeout")).collect::<Vec<_>>()
    };
    // One of them does not know of its link to another yet: that is what the short timeout is for.
    let other = at(&mut observed, "1-0").id;
    at(&mut observed, "0-0").peers.get_mut(&other).unwrap().connected = false;
    assert_eq!(timeouts(&observed), [""; 0]);
    // A server that waits for a processor for longer than that has answered us all the same.
    at(&mut observed, "0-0").peers.get_mut(&other).unwrap().health = Health::Suspect;
    let told = ["0-0", "1-0", "2-0"].map(|pod| format!("set the node timeout of {pod} to 5000 ms"));
    assert_eq!(timeouts(&observed), told);
}

/// Votes are counted by the timeout that a member uses, whatever it is to use.
#[test]
fn a_role_rests_by_the_longest_node_timeout_that_is_in_use() {
    let mut wanted = Desired::cluster(3, 1);
    let (from, how) = (id(pod("0-0")), FailoverHow::Coordinated);
    wanted.failover = Some(FailoverRequest { shard: 0, from, candidate: None, how, accept_data_loss: false });
    let of_millis = |used: u64| {
        let mut observed = layout(THREE);
        observed.elections.insert(0, 1_000);
        at(&mut observed, "2-1").node_timeout_millis = used;
        let waiting = plan::plan(&wanted, &observed, &Limits::default()).waiting;
        waiting.iter().find_map(|why| if let Waiting::Rest { of_millis, .. } = why { Some(*of_millis) } else { None })
    };
    assert_eq!([500, 5_000, 10_000].map(of_millis), [20_500, 20_500, 40_500].map(Some));
}
