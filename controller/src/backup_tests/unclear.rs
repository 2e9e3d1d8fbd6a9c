//! Members that do not speak for the cluster in service: one of a cluster of before, and one node that is two.

use plan::{Member, Node, Pod, SlotSet};

use super::*;
use crate::testing::id;

/// Three shards in service, and at 0-1 a primary of these slots that is left of a cluster of before and has the highest epoch.
fn beside_a_former_one(slots: &SlotSet, state_ok: bool) -> Scene {
    let target = json!({"target": {"directory": {"path": "/mnt/backups"}}});
    let wanted = json!({"shards": 3, "replicasPerShard": 1, "backup": target});
    let mut scene = Scene { probed: healthy(3, 2), resolved: resolved(&wanted), ..Scene::new() };
    for member in scene.probed.observed.members.values_mut() {
        if let Seen::Node(node) = &mut member.seen {
            node.peers.remove(&id(0, 1));
        }
    }
    let former = node(&mut scene.probed, 0, 1);
    (former.id, former.epoch, former.state_ok) = (plan::NodeId::from_bytes([99; 20]), 40, state_ok);
    (former.role, former.peers) = (Role::Primary { slots: slots.clone() }, BTreeMap::new());
    scene
}

/// Before, the higher epoch won: it was completed with the keys of the former cluster and none of those in service, or ended for want of a member.
#[test]
fn a_member_of_a_cluster_of_before_is_not_copied() {
    for (slots, state_ok) in [(SlotSet::all(), true), (SlotSet::range(0, 5460), false)] {
        let mut scene = beside_a_former_one(&slots, state_ok);
        assert_eq!(scene.round().wanted_shards, [0, 1, 2]);
        assert_eq!(scene.names(), ["b1-0-0-backup", "b1-1-0-backup", "b1-2-0-backup"]);
        let command = scene.workers["b1-0-0-backup"].spec.as_ref().unwrap().containers[0].command.clone().unwrap();
        assert_eq!(command[4], "10.0.0.0:16443");
    }
}

/// The member at 0-1 is the node of 0-0 once more.
fn make_twins(scene: &mut Scene) {
    let first = node(&mut scene.probed, 0, 0).clone();
    let other = node(&mut scene.probed, 0, 1);
    *other = Node { address: other.address.clone(), ..first };
}

const TWINS: &str = "it is not certain who serves: node 01010101 runs twice, as member 0-0 at 10.0.0.0:6379 and as member 0-1 at 10.0.0.1:6379; both \
                     take writes for the same slots, so nothing is done to these shards and nobody is introduced. The volume of one is a copy of \
                     the other's: find out which of 0-0 and 0-1, and delete its claim and its pod";

fn told(status: &RedisBackupStatus) -> (BackupPhase, &str, &str) {
    let told = status.conditions.last().unwrap();
    (status.phase, told.reason.as_str(), told.message.as_str())
}

/// Before, the lower of both was copied, and half of what was acknowledged was in no file.
#[test]
fn nothing_is_copied_while_a_node_runs_twice() {
    let mut scene = Scene::new();
    make_twins(&mut scene);
    assert_eq!(told(&scene.round()), (BackupPhase::Pending, "Unclear", TWINS));
    let mut scene = Scene::new();
    scene.round();
    make_twins(&mut scene);
    // Who is at it goes on, and nobody comes after.
    scene.end("b1-1-0-backup", 1, &json!({"failed": {"message": "the member went away"}}));
    assert_eq!(told(&scene.round()), (BackupPhase::Running, "Unclear", TWINS));
    assert_eq!(scene.names(), ["b1-0-0-backup", "b1-1-0-backup"]);
    scene.now = after(601);
    let given_up = format!("given up after 10 min: {TWINS}");
    assert_eq!(told(&scene.round()), (BackupPhase::Failed, "Unclear", given_up.as_str()));
}

fn hold(scene: &mut Scene, held: Pod, of: Pod) {
    let (id, reason) = (id(of.shard, of.ordinal), "node runs elsewhere".to_owned());
    let member: &mut Member = scene.probed.observed.members.get_mut(&held).unwrap();
    member.seen = Seen::Held { holds_data: true, id: Some(id), reason };
    scene.probed.observed.elsewhere.insert(held, "10.9.9.9:6379".to_owned());
}

#[test]
fn nothing_begins_while_a_second_process_of_a_node_is_held_back() {
    let mut scene = Scene::new();
    hold(&mut scene, Pod::new(0, 1), Pod::new(0, 1));
    let text = "it is not certain who serves: member 0-1 is not started: node runs elsewhere";
    assert_eq!(told(&scene.round()), (BackupPhase::Pending, "Unclear", text));
    // A copy of a member that serves is no other word.
    let mut scene = Scene::new();
    hold(&mut scene, Pod::new(0, 1), Pod::new(0, 0));
    assert_eq!(scene.round().phase, BackupPhase::Running);
    assert!(scene.names().contains(&"b1-0-0-backup"));
}

#[test]
fn nothing_begins_while_two_clusters_may_be_the_one_in_service() {
    let mut scene = Scene {
        probed: healthy(1, 2),
        resolved: resolved(&json!({"shards": 1, "replicasPerShard": 1})),
        ..Scene::new()
    };
    scene.resolved.backup_target = Scene::new().resolved.backup_target;
    for ordinal in 0..2 {
        let node = node(&mut scene.probed, 0, ordinal);
        (node.role, node.peers) = (Role::Primary { slots: SlotSet::all() }, BTreeMap::new());
    }
    let text = "it is not certain who serves: member 0-0 (node 01010101) and other members do not know each other, and both claim 16384 slots: volumes of a \
                cluster of before are among theirs. They are not introduced, as Redis would empty one of the two. Neither side is the larger one \
                for certain, so nothing is done: find out which members clients use, and put the claims of the others away";
    assert_eq!(told(&scene.round()), (BackupPhase::Pending, "Unclear", text));
}

/// Before, it said that no member answers with the shard's slots.
#[test]
fn two_owners_in_one_shard_are_told_by_name() {
    let mut scene = Scene::new();
    let slots = node(&mut scene.probed, 0, 0).slots().clone();
    let few = SlotSet::range(0, 99);
    node(&mut scene.probed, 0, 0).role = Role::Primary { slots: slots.difference(&few) };
    node(&mut scene.probed, 0, 1).role = Role::Primary { slots: few };
    let text = "members 0-0 and 0-1 of shard 0 both own slots";
    assert_eq!(told(&scene.round()), (BackupPhase::Pending, "Unclear", text));
}
