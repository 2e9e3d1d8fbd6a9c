//! Rows: a layout, what is wanted, and the whole plan. A layout names each member and what was found there:
//! `P0-99` a primary with slots, `r0-0` a synced replica of that member, `r0-0~` one that is not, `P` an empty primary; `x` stopped, `-`
//! absent, `?` unknown, `s` starting, `H` held without data, `Hd` held with data, `Hn` held without data or identity, `Hdn` with data and
//! without identity. `x:P0-99` says what the others' tables still say of a member that does not answer. `!` at the end: outdated; then `*`:
//! no site has been given to it; then `@a`: it runs at site a.

use std::collections::BTreeMap;

use plan::{
    Approval, Desired, FailoverHow, FailoverRequest, Gap, Health, Limits, Member, Node, NodeId, Observed, Open, Peer,
    PeerRole, Pod, Role, Seen, Site, SlotSet, Stands, goal,
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
        (*pod, Member { outdated, terminating: false, last_id, site, seen: seen(*pod, word) })
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
        disk_current: true,
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
    let ghost = "waits: the dead node 00010000 is forgotten once member 0-1 has seen it gone";
    let told = told(&wanted, &layout(&with("P0-5460", "H:r0-0")));
    assert_eq!(told[..2], ["let 0-1 start blank, its files set aside", ghost]);
}

#[test]
fn an_unknown_member_is_neither_replaced_nor_removed() {
    let unknown = "waits: member 0-1 has not answered for 2 s; its state is not known";
    let text = THREE.replacen("r0-0", "?:r0-0", 1);
    let ghost = "waits: the dead node 00010000 is forgotten once member 0-1 has seen it gone";
    let agree = "waits: 5 of the 5 nodes that answer agree on who owns which slot and report the cluster as ok; member 0-1 does not answer";
    row(&Desired::cluster(3, 1), &text, &[unknown, ghost, agree]);
    let keep = told(&Desired::cluster(3, 0), &layout(&text));
    assert!(!keep.iter().any(|line| line.contains("shard 0")), "{keep:?}");
    assert!(keep.iter().any(|line| line == "remove 1 members of shard 1, 1 stay"), "{keep:?}");
}

#[test]
fn two_clusters_are_never_joined_and_strangers_never_forgotten() {
    let stranger = NodeId::from_bytes([9; 20]);
    let mut observed = layout(THREE);
    let line = Peer {
        address: "10.9.9.9:6379".to_owned(),
        ..peer(pod("9-9"), PeerRole::Primary { slots: SlotSet::EMPTY }, true)
    };
    at(&mut observed, "2-1").peers.insert(stranger, line.clone());
    let refused = "refuses: member 2-1 knows node 09090909 at 10.9.9.9:6379 with 0 slots, which is no pod of this cluster; it is neither joined nor forgotten";
    let disagree = "waits: 5 of 6 nodes agree on who owns which slot and report the cluster as ok";
    assert_eq!(told(&Desired::cluster(3, 1), &observed), [disagree, refused]);
    // It was a member a moment ago: it is forgotten as soon as nobody takes it for alive any more.
    observed.former.insert(stranger);
    let ghost = "waits: the dead node 09090909 is forgotten once member 2-1 has seen it gone";
    assert_eq!(told(&Desired::cluster(3, 1), &observed), [ghost, disagree]);
    observed.former.clear();
    // A member that comes with a whole cluster behind it is not introduced.
    at(&mut observed, "2-1").peers = [(stranger, line)].into();
    for place in ["0-0", "0-1", "1-0", "1-1", "2-0"] {
        at(&mut observed, place).peers.remove(&id(pod("2-1")));
    }
    let told = told(&Desired::cluster(3, 1), &observed);
    assert!(!told.iter().any(|line| line.starts_with("introduce")), "{told:?}");
    assert!(told.contains(&refused.to_owned()), "{told:?}");
}

/// Members at these places are of another cluster, with these epochs: they know each other and none of the rest.
fn of_before(observed: &mut Observed, places: &[(&str, u8, SlotSet)]) {
    let olds: Vec<NodeId> = places.iter().map(|(_, byte, _)| NodeId::from_bytes([*byte; 20])).collect();
    for (place, byte, slots) in places {
        let old = at(observed, place);
        (old.id, old.epoch, old.role) = (NodeId::from_bytes([*byte; 20]), 57, Role::Primary { slots: slots.clone() });
        let line = peer(pod("9-9"), PeerRole::Primary { slots: SlotSet::EMPTY }, false);
        let gone = NodeId::from_bytes([9; 20]);
        old.peers = olds.iter().chain([&gone]).filter(|id| **id != old.id).map(|id| (*id, line.clone())).collect();
    }
    for place in observed.members.keys().copied().collect::<Vec<_>>() {
        if let Some(Member { seen: Seen::Node(node), .. }) = observed.members.get_mut(&place) {
            places.iter().for_each(|(old, _, _)| drop(node.peers.remove(&id(pod(old)))));
        }
    }
}

/// What is said of such a member where more members are on the other side.
fn is_apart(place: &str, short: &str, slots: u16) -> String {
    format!(
        "refuses: member {place} (node {short}) and other members do not know each other, and both claim {slots} slots: volumes of a cluster of before \
         are among theirs. They are not introduced, as Redis would empty one of the two. More members are on the other side, so this one is \
         left alone: find out what it holds, and put its claim away"
    )
}

/// Before, it was introduced: its configuration epoch was higher, and the shard that was in service was emptied.
#[test]
fn a_volume_of_a_cluster_of_before_is_not_introduced() {
    let of = |shard: &str| {
        let mut observed = layout(THREE);
        at(&mut observed, &format!("{shard}-0")).slots().clone()
    };
    let mut observed = layout(THREE);
    of_before(&mut observed, &[("0-1", 8, of("0"))]);
    let refused = is_apart("0-1", "08080808", 5461);
    assert_eq!(told(&Desired::cluster(3, 1), &observed), std::slice::from_ref(&refused));
    // Nor while whoever has the slots does not answer for a moment.
    for seen in [Seen::Starting, Seen::Unknown { since_millis: 0 }, Seen::Stopped, Seen::Absent] {
        let mut observed = observed.clone();
        let member = observed.members.get_mut(&pod("0-0")).unwrap();
        (member.last_id, member.seen) = (Some(id(pod("0-0"))), seen);
        let told = told(&Desired::cluster(3, 1), &observed);
        assert!(
            told.contains(&refused) && !told.iter().any(|line| line.contains("0-1 ") && !line.starts_with("refuses")),
            "{told:?}"
        );
    }
    // It knows one of the members: it was away, and comes back.
    at(&mut observed, "0-1")
        .peers
        .insert(id(pod("1-0")), peer(pod("1-0"), PeerRole::Primary { slots: SlotSet::EMPTY }, true));
    let told_of = told(&Desired::cluster(3, 1), &observed);
    assert!(told_of.iter().any(|line| line.starts_with("introduce")), "{told_of:?}");
}

/// Each knows the other, who is at a place of this cluster now.
#[test]
fn volumes_of_a_cluster_of_before_are_not_introduced_together_either() {
    let mut observed = layout(THREE);
    let (first, second) = (at(&mut observed, "0-0").slots().clone(), at(&mut observed, "1-0").slots().clone());
    of_before(&mut observed, &[("0-1", 8, first), ("1-1", 7, second)]);
    let refused = [is_apart("0-1", "08080808", 10923), is_apart("1-1", "07070707", 10923)];
    assert_eq!(told(&Desired::cluster(3, 1), &observed), refused);
}

/// Those in service are more, and most of them do not answer at this moment.
#[test]
fn who_is_in_service_is_not_taken_for_the_smaller_side_while_it_restarts() {
    let mut observed = layout("0-0 P0-5460 0-1 - 1-0 P5461-10922 1-1 - 2-0 P10923-16383");
    let first = at(&mut observed, "0-0").slots().clone();
    let blank = at(&mut observed, "2-0").clone();
    observed.members.get_mut(&pod("0-1")).unwrap().seen = Seen::Node(Box::new(blank));
    of_before(&mut observed, &[("0-1", 8, first)]);
    let told_of = |observed: &Observed| told(&Desired::cluster(3, 1), observed);
    assert!(told_of(&observed).contains(&is_apart("0-1", "08080808", 5461)), "{:?}", told_of(&observed));
    for seen in [Seen::Starting, Seen::Unknown { since_millis: 0 }, Seen::Stopped] {
        let mut observed = observed.clone();
        for place in ["0-0", "1-0"] {
            let member = observed.members.get_mut(&pod(place)).unwrap();
            (member.last_id, member.seen) = (Some(id(pod(place))), seen.clone());
        }
        let told = told_of(&observed);
        assert!(told.contains(&is_apart("0-1", "08080808", 5461)), "{told:?}");
        // Nobody knows who they were.
        for place in ["0-0", "1-0"] {
            observed.members.get_mut(&pod(place)).unwrap().last_id = None;
        }
        let told = told_of(&observed);
        assert!(told.iter().all(|line| line.starts_with("refuses: ") || line.starts_with("waits: ")), "{told:?}");
    }
}

#[test]
fn of_two_clusters_of_one_size_nobody_is_built_on() {
    let mut observed = layout("0-0 P0-16383 0-1 P0-16383");
    for place in ["0-0", "0-1"] {
        at(&mut observed, place).peers.clear();
    }
    let told_of = told(&Desired::cluster(1, 1), &observed);
    let unsure = "Neither side is the larger one for certain, so nothing is done: find out which members clients use, and put the claims of the others away";
    assert_eq!(
        told_of.iter().filter(|line| line.starts_with("refuses: member 0-") && line.ends_with(unsure)).count(),
        2
    );
    assert!(told_of.iter().all(|line| line.starts_with("refuses: ") || line.starts_with("waits: ")), "{told_of:?}");
}

#[test]
fn a_node_that_runs_twice_is_told_and_neither_introduced_nor_built_on() {
    let mut observed = layout(THREE);
    at(&mut observed, "1-0").id = id(pod("0-0"));
    // What a controller would do if it took the two for two nodes: introduce them, for ever.
    let told_of = |observed: &Observed| told(&Desired::cluster(3, 1), observed);
    let both = "node 00000000 runs twice, as member 0-0 at 0-0 and as member 1-0 at 1-0; both take writes for the same slots, so nothing is done to \
                these shards and nobody is introduced. ";
    let copied = "Member 1-0 was another node before: its volume is a copy of the other's. Delete the claim and the pod of member 1-0";
    assert!(told_of(&observed).contains(&format!("refuses: {both}{copied}")), "{:?}", told_of(&observed));
    let quiet = |observed: &Observed| {
        let plan = plan::plan(&Desired::cluster(3, 1), observed, &Limits::default());
        plan.steps.is_empty() && plan.waiting.iter().all(|why| !why.to_string().contains("shard 0"))
    };
    assert!(quiet(&observed));
    observed.members.get_mut(&pod("1-0")).unwrap().last_id = Some(id(pod("0-0")));
    let unclear =
        "The volume of one is a copy of the other's: find out which of 0-0 and 1-0, and delete its claim and its pod";
    assert!(told_of(&observed).contains(&format!("refuses: {both}{unclear}")), "{:?}", told_of(&observed));

    // One of them does not answer for a moment.
    let mut away = observed.clone();
    away.members.get_mut(&pod("1-0")).unwrap().seen = Seen::Unknown { since_millis: 100 };
    assert!(quiet(&away));
    let one_away = "refuses: node 00000000 runs twice, as member 0-0 at 0-0 and as member 1-0 at an address that is not known now; both take";
    assert!(told_of(&away).iter().any(|line| line.starts_with(one_away)), "{:?}", told_of(&away));
    // One process at the address of two places: nobody knows yet whose it is.
    at(&mut observed, "1-0").address = "0-0".to_owned();
    assert!(quiet(&observed));
    let unknown =
        ["0-0", "1-0"].map(|pod| format!("waits: member {pod} has not answered for 0 s; its state is not known"));
    let told = told_of(&observed);
    assert!(
        unknown.iter().all(|line| told.contains(line)) && !told.iter().any(|line| line.contains("twice")),
        "{told:?}"
    );

    let mut observed = layout(&THREE.replacen("r0-0", "r0-0!", 1));
    observed.elsewhere.insert(pod("0-0"), "10.9.9.9:6379".to_owned());
    let outside = "refuses: node 00000000 runs twice, as member 0-0 at 0-0 and at 10.9.9.9:6379, where no pod of this cluster is; both take writes \
                   for the same slots, so nothing is done to these shards and nobody is introduced. End the process at 10.9.9.9:6379: a pod that was \
                   deleted by force still runs on its machine";
    assert!(told_of(&observed).contains(&outside.to_owned()), "{:?}", told_of(&observed));
    assert!(quiet(&observed), "{:?}", told_of(&observed));

    // The second process is not started, and its agent says why.
    let (held, reason) = (id(pod("0-0")), "its node runs already".to_owned());
    observed.members.get_mut(&pod("0-0")).unwrap().seen = Seen::Held { holds_data: true, id: Some(held), reason };
    assert!(quiet(&observed), "{:?}", told_of(&observed));
    let held = "refuses: member 0-0 is not started: its node runs already";
    assert!(told_of(&observed).contains(&held.to_owned()), "{:?}", told_of(&observed));
}

#[test]
fn an_introduction_is_given_time_and_repeated_ever_more_seldom() {
    let mut observed = layout(THREE);
    at(&mut observed, "2-1").peers.remove(&id(pod("2-0")));
    let introduces = |observed: &Observed| {
        let plan = plan::plan(&Desired::cluster(3, 1), observed, &Limits::default());
        plan.steps.iter().any(|step| step.to_string() == "introduce 2-1 at 2-1 to 2-0")
    };
    assert!(introduces(&observed));
    let mut after = |since_millis, times, at: [&str; 2]| {
        let told = plan::Introduced { at: at.map(str::to_owned), since_millis, times };
        observed.introduced = [((pod("2-0"), pod("2-1")), told)].into();
        introduces(&observed)
    };
    let here = ["2-0", "2-1"];
    let table = [(999, 1), (1_000, 1), (1_999, 2), (2_000, 2), (7_999, 4), (8_000, 4), (14_999, 5), (15_000, 99)];
    let again = table.map(|(since, times)| after(since, times, here));
    assert_eq!(again, [false, true, false, true, false, true, false, true]);
    assert!(after(0, 9, ["2-0", "10.0.0.9:6379"]), "it has come back at another address");
}

/// 1,000 members: 512 introductions make a group of 513, and those outside of it must all come to one member of it next. One who knows
/// nobody as the hub would be introduced to all of the group, and everybody else would wait.
#[test]
fn who_is_outside_of_the_largest_group_is_introduced_to_one_of_it() {
    let mut observed = layout(THREE);
    let (group, outside) = (["0-0", "0-1", "1-0", "1-1"], ["2-0", "2-1"]);
    for one in outside {
        at(&mut observed, one).peers.clear();
        group.into_iter().for_each(|other| drop(at(&mut observed, other).peers.remove(&id(pod(one)))));
    }
    let plan = plan::plan(&Desired::cluster(3, 1), &observed, &Limits { meets: 2, ..Limits::default() });
    let told: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    let met: Vec<&String> = told.iter().filter(|line| line.starts_with("introduce")).collect();
    assert_eq!(met, ["introduce 2-0 at 2-0 to 0-0", "introduce 2-1 at 2-1 to 0-0"]);
}

#[test]
fn half_moved_slots_are_finished_or_cleared_by_what_both_ends_hold() {
    let wanted = Desired::cluster(3, 1);
    let (source, target) = (id(pod("0-0")), id(pod("1-0")));
    let case = |marks: [bool; 2], foreign: u64| {
        let mut observed = layout(THREE);
        if marks[0] {
            at(&mut observed, "0-0").open.insert(5, Open::Migrating(target));
        }
        if marks[1] {
            at(&mut observed, "1-0").open.insert(5, Open::Importing(source));
        }
        at(&mut observed, "1-0").foreign_keys.insert(5, foreign);
        told(&wanted, &observed)
    };
    let forward = ["move 1 slots from 0-0 to 1-0: 5"];
    assert_eq!(case([true, true], 3), forward);
    assert_eq!(case([true, true], 0), forward);
    assert_eq!(case([true, false], 0), forward);
    assert_eq!(case([false, true], 3), forward);
    // The source was replaced and has lost its mark; the keys are still at the target.
    assert_eq!(case([false, false], 3), forward);
    assert_eq!(case([false, true], 0), ["clear the marks of 1 slots on 1-0: 5"]);
}

#[test]
fn the_first_keys_of_a_shard_are_left_to_nobody_but_a_newer_member_of_it() {
    let wanted = Desired::cluster(3, 1);
    let case = |second: &str, change: fn(&mut Node)| {
        let mut observed = layout(&format!("0-0 P0-8191 0-1 r0-0 1-0 P8192-16383 1-1 r1-0 2-0 {second} 2-1 P"));
        let receiver = at(&mut observed, "2-1");
        (receiver.keys, receiver.foreign_keys) = (3, [(5, 3)].into());
        change(at(&mut observed, "2-0"));
        told(&wanted, &observed)
    };
    // The source has lost its mark; the other member has the lower ordinal, or even follows another shard's primary.
    let forward = ["move 1 slots from 0-0 to 2-1: 5"];
    assert_eq!(case("P", |_| {}), forward);
    assert_eq!(case("r1-0", |other| other.epoch = 9), forward);
    let replaced = case("P", |other| other.epoch = 9);
    let told = "refuses: member 2-1 has been replaced as a primary, owns no slot, and Redis does not make it a replica because it holds 3 keys of \
                the slots 5. Whether the owners of the slots 5 have these keys is not known: compare first. To give up what 2-1 holds: delete its \
                claim and its pod, and it comes back empty, as a replica";
    assert!(replaced.contains(&told.to_owned()), "{replaced:?}");
    assert!(!replaced.iter().any(|line| line.contains("to 2-1")), "{replaced:?}");
}

/// Before, one look without an answer of its heir made it the lead of a shard without slots.
#[test]
fn a_former_primary_leads_nothing_while_its_heir_does_not_answer() {
    let wanted = Desired::cluster(3, 1);
    for (heard, is_sent) in [(3, true), (9, false)] {
        let mut observed = layout("0-0 P0-8191 0-1 r0-0 1-0 P8192-16383 1-1 r1-0 2-0 ?:P 2-1 P");
        for other in ["0-0", "0-1", "1-0", "1-1"] {
            at(&mut observed, other).peers.get_mut(&id(pod("2-0"))).unwrap().epoch = heard;
        }
        let former = at(&mut observed, "2-1");
        (former.keys, former.foreign_keys) = (3, [(5, 3)].into());
        let plan = told(&wanted, &observed);
        assert_eq!(plan.iter().any(|line| line.ends_with("to 2-1: 5")), is_sent, "{plan:?}");
    }
}

#[test]
fn only_what_needs_the_keys_of_a_member_waits_for_their_count() {
    let mut observed = layout(THREE);
    at(&mut observed, "1-0").uncounted = SlotSet::range(0, 5460);
    assert_eq!(told(&Desired::cluster(3, 1), &observed), [""; 0]);
    at(&mut observed, "0-0").open.insert(5, Open::Migrating(id(pod("2-0"))));
    let wait = "waits: it is not counted yet whether member 1-0 holds keys of 1 slots that are not its own";
    assert_eq!(told(&Desired::cluster(3, 1), &observed), [wait]);
    let mut leaving = layout("0-0 P0-8191 1-0 P8192-16383 2-0 P");
    at(&mut leaving, "2-0").uncounted = SlotSet::all();
    let wait = "waits: it is not counted yet whether member 2-0 holds keys of 16384 slots that are not its own";
    assert_eq!(told(&Desired::cluster(2, 0), &leaving), [wait]);
    at(&mut leaving, "2-0").uncounted = SlotSet::EMPTY;
    assert_eq!(told(&Desired::cluster(2, 0), &leaving), ["remove shard 2 with its 1 members"]);
    // Who holds keys of a slot that nobody owns gets it.
    let mut unowned = layout("0-0 P1-8191 1-0 P8192-16383");
    at(&mut unowned, "1-0").uncounted = SlotSet::range(0, 0);
    let wait = "waits: it is not counted yet whether member 1-0 holds keys of 1 slots that are not its own";
    assert_eq!(told(&Desired::cluster(2, 0), &unowned), [wait]);
}

#[test]
fn a_replica_has_its_marks_cleared_by_its_primary() {
    // Valkey's replicas have the marks of their primaries, and keep one whose command was broken off before the primary had it.
    let wanted = Desired::cluster(3, 1);
    let (source, target) = (id(pod("0-0")), id(pod("1-0")));
    let mut observed = layout(THREE);
    at(&mut observed, "0-1").open.insert(5, Open::Migrating(target));
    assert_eq!(told(&wanted, &observed), ["clear the marks of 1 slots on 0-0: 5"]);
    at(&mut observed, "1-0").open.insert(5, Open::Importing(source));
    at(&mut observed, "1-1").open.insert(5, Open::Importing(source));
    let both = ["clear the marks of 1 slots on 0-0: 5", "clear the marks of 1 slots on 1-0: 5"];
    assert_eq!(told(&wanted, &observed), both);
    // With its primary's mark it is a move that goes on.
    at(&mut observed, "0-0").open.insert(5, Open::Migrating(target));
    assert_eq!(told(&wanted, &observed), ["move 1 slots from 0-0 to 1-0: 5"]);
    // Nobody can tell it while its primary is away.
    let mut alone = layout(&THREE.replacen("0-0 P", "0-0 ?:P", 1));
    at(&mut alone, "0-1").open.insert(9, Open::Migrating(target));
    assert!(!told(&wanted, &alone).iter().any(|line| line.starts_with("clear")), "{:?}", told(&wanted, &alone));
}

#[test]
fn half_moved_slots_are_finished_although_migration_is_paused() {
    let mut wanted = Desired::cluster(2, 0);
    wanted.hold = Some(plan::Hold::Paused);
    let mut observed = layout("0-0 P0-9999 1-0 P10000-16383");
    at(&mut observed, "0-0").open.insert(7, Open::Migrating(id(pod("1-0"))));
    assert_eq!(told(&wanted, &observed), ["move 1 slots from 0-0 to 1-0: 7"]);
    assert_eq!(
        told(&wanted, &layout("0-0 P0-9999 1-0 P10000-16383")),
        ["waits: 1808 slots still have to move; spec.migration.paused holds them"]
    );
}

#[test]
fn moves_wait_for_gossip_that_could_undo_them() {
    let wanted = Desired::cluster(2, 0);
    let text = "0-0 P0-9999 1-0 P10000-16383";
    let mut observed = layout(text);
    (at(&mut observed, "0-0").epoch, at(&mut observed, "0-0").current_epoch) = (8, 8);
    let wait = "waits: 1 of 2 nodes agree on who owns which slot and report the cluster as ok";
    assert_eq!(told(&wanted, &observed), [wait]);
    at(&mut observed, "1-0").peers.get_mut(&id(pod("0-0"))).unwrap().epoch = 8;
    assert_eq!(told(&wanted, &observed), ["move 256 slots from 0-0 to 1-0: 8192-8447"]);
    at(&mut observed, "1-0").state_ok = false;
    assert_eq!(told(&wanted, &observed), [wait]);
}

#[test]
fn a_claim_that_an_old_table_outdoes_is_raised() {
    let mut observed = layout("0-0 P0-8191 1-0 P8192-16383 1-1 r1-0");
    let away = at(&mut observed, "1-1");
    let line = |slots: &str| PeerRole::Primary { slots: SlotSet::parse(slots).unwrap() };
    away.peers.get_mut(&id(pod("0-0"))).unwrap().role = line("0-8100");
    away.peers.get_mut(&id(pod("1-0"))).unwrap().role = line("8101-16383");
    observed.members.remove(&pod("2-0"));
    let mut wanted = Desired::cluster(2, 1);
    wanted.replicas = 1;
    let told = told(&wanted, &observed);
    assert_eq!(told[0], "raise the epoch of 0-0 above 2, so that its claim counts");
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
fn a_restart_waits_until_everybody_is_in_sync() {
    let text = THREE.replacen("P0-5460", "P0-5460!", 1).replacen("r2-0", "r2-0~", 1);
    row(&Desired::cluster(3, 1), &text, &["waits: replica 2-1 is not in sync: its link to the primary is down"]);
    let text = THREE.replacen("P0-5460", "P0-5460!", 1);
    row(&Desired::cluster(3, 1), &text, &["hand the primary role over from 00000000 to 0-1"]);
    let mut supervised = Desired::cluster(3, 1);
    supervised.approval = Approval::Supervised { approved: [1].into() };
    let wait = "waits: the hand-over of primary 0-0 of shard 0 waits for approval (redis.kun.io/approve)";
    row(&supervised, &text, &[wait]);
}

/// Three shards whose members 0-1 and 2-1 are outdated, out of sync, and hold nothing.
fn left_behind() -> Observed {
    let mut observed = layout(&THREE.replacen("r0-0", "r0-0~!", 1).replacen("r2-0", "r2-0~!", 1));
    for place in ["0-1", "2-1"] {
        at(&mut observed, place).keys = 0;
    }
    observed
}

#[test]
fn an_outdated_replica_that_holds_nothing_is_restarted_before_it_is_in_sync() {
    let wanted = Desired::cluster(3, 1);
    let waits =
        ["0-1", "2-1"].map(|pod| format!("waits: replica {pod} is not in sync: its link to the primary is down"));
    let one_at_a_time = ["restart 0-1", waits[0].as_str(), waits[1].as_str()];
    assert_eq!(told(&wanted, &left_behind()), one_at_a_time);
    let restart = |change: fn(&mut Observed)| {
        let mut observed = left_behind();
        change(&mut observed);
        told(&wanted, &observed).into_iter().find(|line| line.starts_with("restart"))
    };
    assert_eq!(restart(|_| {}).as_deref(), Some("restart 0-1"));
    // Another member is not in sync for another reason, or holds something: who knows whether anybody else has it.
    assert_eq!(restart(|seen| at(seen, "2-1").keys = 1), None);
    assert_eq!(restart(|seen| seen.members.get_mut(&pod("2-1")).unwrap().outdated = false), None);
    // It is just getting its copy, or its primary cannot give it any.
    assert_eq!(restart(|seen| at(seen, "0-1").loading = true), None);
    assert_eq!(restart(|seen| at(seen, "0-0").loading = true), None);
    assert_eq!(restart(|seen| at(seen, "0-0").state_ok = false), None);
    assert_eq!(restart(|seen| at(seen, "0-0").disk_current = false), None);
    assert_eq!(restart(|seen| seen.members.get_mut(&pod("0-0")).unwrap().terminating = true), None);
    // A primary that is outdated, too, may still be the newer one of the two.
    assert_eq!(
        restart(|seen| seen.members.get_mut(&pod("0-0")).unwrap().outdated = true).as_deref(),
        Some("restart 0-1")
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

#[test]
fn a_pod_stuck_on_an_old_template_is_freed() {
    let told = told(&Desired::cluster(3, 1), &layout(&THREE.replacen("r0-0", "x:r0-0!", 1)));
    assert_eq!(told[..2], ["restart 0-1", "waits: member 0-1 has not started yet"]);
}

#[test]
fn a_pod_of_an_old_template_that_never_got_a_site_is_replaced_at_once_as_nothing_of_it_ever_ran() {
    let mut wanted = Desired::cluster(1, 1);
    wanted.restart_keeps_data = false;
    let start = "waits: member 0-0 has not started yet";
    let told = |text| told(&wanted, &layout(text));
    let stuck = told("0-0 x!* 0-1 x!*");
    assert_eq!(stuck[..4], ["restart 0-0", "restart 0-1", start, "waits: member 0-1 has not started yet"]);
    // What runs nowhere now may have run, and its files may be the last.
    assert_eq!(told("0-0 x!@a 0-1 x!@a")[0], start);
    // Of today's template there is nothing better to be had.
    assert_eq!(told("0-0 x* 0-1 x*")[0], start);
}

#[test]
fn a_standalone_server_is_restarted_only_if_it_finds_its_data_again() {
    let mut wanted = Desired::cluster(1, 0);
    wanted.mode = plan::Mode::Standalone;
    row(&wanted, "0-0 P", &[]);
    row(&wanted, "0-0 P!", &["restart 0-0"]);
    wanted.restart_keeps_data = false;
    row(
        &wanted,
        "0-0 P!",
        &["refuses: restarting member 0-0 would lose 0 keys: it is its shard's only copy and nothing is kept on disk"],
    );
    row(&wanted, "0-0 Hn", &["let 0-0 start blank, its files set aside"]);
    row(&wanted, "0-0 Hd", &["let 0-0 start with its files as they are"]);
}

#[test]
fn a_server_whose_parameters_are_refused_is_not_restarted() {
    let mut wanted = Desired::cluster(1, 0);
    wanted.mode = plan::Mode::Standalone;
    let mut observed = layout("0-0 P!");
    observed.unused.insert(pod("0-0"), plan::Unused::Refused);
    let refused = "waits: no member is restarted while member 0-0 does not use spec.config, which its engine refuses: correct spec.config, and \
                   the restart goes on by itself";
    assert_eq!(told(&wanted, &observed), [refused]);
    // With its restart it gets what it has not got yet.
    observed.unused.insert(pod("0-0"), plan::Unused::Pending);
    assert_eq!(told(&wanted, &observed), ["restart 0-0"]);
    // A member that has been restarted shows what the next one will get.
    let mut observed = layout(&THREE.replacen("r0-0", "r0-0!", 1));
    observed.unused.insert(pod("2-1"), plan::Unused::Pending);
    let pending = "waits: no other member is restarted before member 2-1 shows the parameters of spec.config";
    assert_eq!(told(&Desired::cluster(3, 1), &observed), [pending]);
    observed.unused.clear();
    assert_eq!(told(&Desired::cluster(3, 1), &observed), ["restart 0-1"]);
}

/// Three shards whose members run at these sites, in order of their places.
fn at_sites(sites: [&str; 6]) -> String {
    let words: Vec<&str> = THREE.split_whitespace().collect();
    let members = words.chunks(2).zip(sites);
    members.map(|(pair, site)| format!("{} {}@{site}", pair[0], pair[1])).collect::<Vec<_>>().join(" ")
}

#[test]
fn no_site_keeps_half_of_the_primaries_where_a_replica_elsewhere_can_take_one() {
    let wanted = Desired::cluster(3, 1);
    let first = ["hand the primary role over from 00000000 to 0-1"];
    row(&wanted, &at_sites(["a", "b", "a", "b", "a", "b"]), &first);
    row(&wanted, &at_sites(["a", "b", "a", "c", "b", "a"]), &["hand the primary role over from 01000000 to 1-1"]);
    row(&wanted, &at_sites(["a", "b", "b", "c", "c", "a"]), &[]);
    // Two of three at one site, and no way to make it fewer than two anywhere.
    row(&wanted, &at_sites(["a", "b", "a", "b", "b", "a"]), &[]);
    // Half of them are too many as well: without them there is no majority.
    let four = "0-0 P0-4095@a 0-1 r0-0@c 1-0 P4096-8191@a 1-1 r1-0@b 2-0 P8192-12287@b 2-1 r2-0@a 3-0 P12288-16383@b 3-1 r3-0@c";
    row(&Desired::cluster(4, 1), four, &first);
}

#[test]
fn the_first_primaries_stand_at_different_sites_where_that_is_possible() {
    let assigned = |text: &str| {
        let mut observed = layout(text);
        for member in observed.members.values_mut() {
            if let Seen::Node(node) = &mut member.seen {
                (node.keys, node.epoch) = (0, 0);
                node.peers.clear();
            }
        }
        let plan = plan::plan(&Desired::cluster(3, 1), &observed, &Limits::default());
        let steps: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
        let places: Vec<&str> = ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"].to_vec();
        let has_slots = |place: &&str| steps.iter().any(|step| step.contains(&format!("slots to {place}:")));
        places.into_iter().filter(has_slots).collect::<Vec<_>>()
    };
    assert_eq!(assigned("0-0 P@a 0-1 P@b 1-0 P@b 1-1 P@c 2-0 P@c 2-1 P@a"), ["0-0", "1-0", "2-0"]);
    assert_eq!(assigned("0-0 P@a 0-1 P@b 1-0 P@a 1-1 P@c 2-0 P@c 2-1 P@b"), ["0-0", "1-1", "2-1"]);
    // What the first could take is not known before the last has had its turn.
    assert_eq!(assigned("0-0 P@b 0-1 P@c 1-0 P@a 1-1 P@c 2-0 P@b 2-1 P@a"), ["0-1", "1-0", "2-0"]);
    assert_eq!(assigned("0-0 P@a 0-1 P@a 1-0 P@a 1-1 P@a 2-0 P@a 2-1 P@a"), ["0-0", "1-0", "2-0"]);
    assert_eq!(assigned("0-0 P 0-1 P 1-0 P 1-1 P 2-0 P 2-1 P"), ["0-0", "1-0", "2-0"]);
}

#[test]
fn no_role_goes_to_a_replica_that_most_primaries_take_for_something_else() {
    // As while a cluster is being formed: they would refuse it their votes, and its primary would hold its clients' writes in vain.
    let text = at_sites(["a", "b", "a", "b", "a", "b"]);
    let heirs = ["0-1", "1-1", "2-1"];
    let takes_for_a_primary = |observed: &mut Observed, voter: &str| {
        let peers = &mut at(observed, voter).peers;
        for heir in heirs {
            if let Some(peer) = peers.get_mut(&id(pod(heir))) {
                peer.role = PeerRole::Primary { slots: SlotSet::EMPTY };
            }
        }
    };
    let hands_over =
        |observed: &Observed| told(&Desired::cluster(3, 1), observed).iter().any(|line| line.contains("hand"));
    let mut observed = layout(&text);
    takes_for_a_primary(&mut observed, "2-0");
    assert!(hands_over(&observed), "two of three are enough");
    takes_for_a_primary(&mut observed, "1-0");
    takes_for_a_primary(&mut observed, "0-0");
    assert!(!hands_over(&observed));
}

#[test]
fn nobody_waits_for_a_replica_elsewhere_that_is_far_behind() {
    let mut observed = layout(&at_sites(["a", "b", "a", "b", "a", "a"]));
    let behind = |observed: &mut Observed, place: &str| {
        let Role::Replica { lag_bytes, .. } = &mut at(observed, place).role else { panic!("{place} is no replica") };
        *lag_bytes = 1 << 30;
    };
    behind(&mut observed, "0-1");
    let steps = |observed: &Observed| plan::plan(&Desired::cluster(3, 1), observed, &Limits::default());
    let other = steps(&observed).steps.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(other, ["hand the primary role over from 01000000 to 1-1"]);
    behind(&mut observed, "1-1");
    assert!(steps(&observed).is_satisfied());
}

#[test]
fn a_role_that_moves_anyway_goes_where_the_fewest_primaries_are() {
    let text = "0-0 P0-5460!@a 0-1 r0-0@b 0-2 r0-0@c 1-0 P5461-10922@b 1-1 r1-0@a 1-2 r1-0@c 2-0 P10923-16383@d 2-1 r2-0@a 2-2 r2-0@b";
    let mut wanted = Desired::cluster(3, 2);
    row(&wanted, text, &["hand the primary role over from 00000000 to 0-2"]);
    row(&wanted, &text.replace("@c", "@b"), &["hand the primary role over from 00000000 to 0-1"]);
    wanted.spread = false;
    row(&wanted, text, &["hand the primary role over from 00000000 to 0-1"]);
}

#[test]
fn at_one_site_or_at_sites_that_are_not_known_roles_stay_where_they_are() {
    let wanted = Desired::cluster(3, 1);
    row(&wanted, &at_sites(["a"; 6]), &[]);
    row(&wanted, &at_sites(["a", "b", "", "b", "a", "b"]), &[]);
    row(&wanted, &at_sites(["a", "", "a", "", "a", ""]), &[]);
    row(&Desired::cluster(1, 1), "0-0 P0-16383@a 0-1 r0-0@b", &[]);
    row(&Desired { spread: false, ..wanted }, &at_sites(["a", "b", "a", "b", "a", "b"]), &[]);
}

#[test]
fn what_a_person_asked_for_outweighs_the_spread_of_primaries() {
    let text = at_sites(["a", "b", "a", "b", "a", "b"]);
    let placed =
        |shards: &[u16]| Desired { placed_by_hand: shards.iter().copied().collect(), ..Desired::cluster(3, 1) };
    row(&placed(&[0]), &text, &["hand the primary role over from 01000000 to 1-1"]);
    row(&placed(&[0, 1, 2]), &text, &[]);
    // While a failover is asked for nothing else moves, also when it is done and its record does not say so yet.
    let mut asked = Desired::cluster(3, 1);
    let from = id(pod("2-1"));
    asked.failover = Some(FailoverRequest {
        shard: 2,
        from,
        candidate: None,
        how: FailoverHow::Coordinated,
        accept_data_loss: false,
    });
    row(&asked, &text, &[]);
}

#[test]
fn a_role_is_taken_from_the_shard_that_has_rested_longest_and_one_at_a_time() {
    let text = at_sites(["a", "b", "a", "b", "a", "b"]);
    let mut observed = layout(&text);
    observed.elections = [(0, 30_000), (1, 90_000), (2, 60_000)].into();
    assert_eq!(told(&Desired::cluster(3, 1), &observed), ["hand the primary role over from 01000000 to 1-1"]);
    observed.elections = [(0, 1_000), (1, 2_000), (2, 3_000)].into();
    let rest = "waits: the primary role of shard 2 moved, or may have moved, 3.0 s ago; it may move again 21 s after that, when Redis counts votes anew";
    assert_eq!(told(&Desired::cluster(3, 1), &observed), [rest]);
    observed.elections.clear();
    observed.failovers_asked.insert(2, 400);
    let asked = "waits: the failover of shard 2 was asked for 400 ms ago and is not seen yet";
    assert_eq!(told(&Desired::cluster(3, 1), &observed), [asked]);
}

#[test]
fn primaries_are_spread_after_a_roll_and_before_members_return_that_may_be_away_for_long() {
    let wanted = Desired::cluster(3, 1);
    let outdated = at_sites(["a", "b", "a", "b", "a", "b"]).replacen("r2-0", "r2-0!", 1);
    row(&wanted, &outdated, &["restart 2-1"]);
    // An outdated replica would have to give the role back.
    let mut supervised = Desired::cluster(3, 1);
    supervised.approval = Approval::Supervised { approved: [].into() };
    let first = at_sites(["a", "b", "a", "b", "b", "a"]).replacen("P0-5460", "P0-5460!", 1);
    let wait = "waits: the hand-over of primary 0-0 of shard 0 waits for approval (redis.kun.io/approve)";
    row(&supervised, &first, &[wait]);
    let five = "0-0 P0-3276@a 0-1 r0-0@b 1-0 P3277-6553@a 1-1 r1-0@b 2-0 P6554-9829@a 2-1 x:r2-0@b 3-0 P9830-13106@b 3-1 r3-0@a 4-0 P13107-16383@c 4-1 r4-0@a";
    let handed = "hand the primary role over from 00000000 to 0-1";
    let told_of = |text: &str| told(&Desired::cluster(5, 1), &layout(text));
    assert!(!told_of(five).contains(&handed.to_owned()), "2-1 is on its way up");
    assert!(!told_of(&five.replace("x:r2-0@b", "-:r2-0*")).contains(&handed.to_owned()), "2-1 is made anew");
    assert!(told_of(&five.replace("x:r2-0@b", "x:r2-0*")).contains(&handed.to_owned()), "there is no site for 2-1");
    assert!(told_of(&five.replace("x:r2-0@b", "?:r2-0@b")).contains(&handed.to_owned()), "2-1 is not seen");
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
