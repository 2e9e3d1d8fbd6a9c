//! Members that do not know each other, or are one node twice.

use super::{THREE, at, id, layout, peer, pod, told};
use plan::{Desired, Limits, Member, Mode, NodeId, Observed, Peer, PeerRole, Role, Seen, SlotSet, serving};

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

/// Before, a backup asked everybody, and the higher epoch of the cluster of before won.
#[test]
fn a_volume_of_a_cluster_of_before_owns_nothing_of_what_is_in_service() {
    let mut observed = layout(THREE);
    let owned = serving(Mode::Cluster, &observed).owned();
    of_before(&mut observed, &[("0-1", 8, SlotSet::all())]);
    let serving = serving(Mode::Cluster, &observed);
    assert_eq!((serving.owned(), serving.unclear()), (owned, None));
}

/// Before, the two were taken for the cluster in service, as they are more than the one that is.
#[test]
fn more_volumes_of_a_cluster_of_before_prove_nothing_against_one_in_service() {
    let mut observed = layout("0-0 P0-16383 0-1 P0-16383 0-2 r0-1");
    at(&mut observed, "0-0").peers.clear();
    for place in ["0-1", "0-2"] {
        at(&mut observed, place).peers.remove(&id(pod("0-0")));
    }
    let of = |observed: &Observed| {
        let serving = serving(Mode::Cluster, observed);
        (serving.owned().into_keys().collect::<Vec<_>>(), serving.unclear().is_some())
    };
    assert_eq!(of(&observed), (vec![pod("0-1")], false));
    observed.older_volumes.extend([pod("0-1"), pod("0-2")]);
    assert_eq!(of(&observed), (vec![], true));
    // All of them were there before the cluster, which was made again on them.
    observed.older_volumes.insert(pod("0-0"));
    assert_eq!(of(&observed), (vec![pod("0-1")], false));
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

/// Before, the advice came first to end the process at the other address: that of the healthy original.
#[test]
fn a_copy_that_is_held_is_told_as_that_and_its_original_is_left_alone() {
    let mut observed = layout(THREE);
    let (original, copy, its) = (pod("0-0"), pod("0-1"), id(pod("0-0")));
    let reason = "End the process at 0-0".to_owned();
    observed.members.get_mut(&copy).unwrap().seen = Seen::Held { holds_data: true, id: Some(its), reason };
    observed.elsewhere.insert(copy, "0-0".to_owned());
    observed.former.insert(id(copy));
    let refused = |observed: &Observed| plan::plan(&Desired::cluster(3, 1), observed, &Limits::default()).refused;
    let is_copy = plan::Refused::Copied { pod: copy, id: its, of: (original, "0-0".to_owned()) };
    assert_eq!(refused(&observed), [is_copy]);
    let says = "refuses: member 0-1 is not started: its node 00000000 is that of member 0-0, which runs at 0-0 in its own pod; started here as well, both \
                would take writes for the same slots. The volume here is a copy of member 0-0's: delete the claim and the pod of member 0-1, and \
                nothing of member 0-0";
    let all = told(&Desired::cluster(3, 1), &observed);
    assert!(all.contains(&says.to_owned()), "{all:?}");
    // It was this node, and the one that runs was another: who has the copy is not said here.
    observed.members.get_mut(&copy).unwrap().last_id = Some(its);
    observed.members.get_mut(&original).unwrap().last_id = Some(id(copy));
    assert!(matches!(refused(&observed)[..], [plan::Refused::RunsAlready { .. }]), "{:?}", refused(&observed));
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
