//! What is half moved, or on its way.

use super::*;

#[test]
fn a_backup_waits_for_what_moves_not_for_what_a_replaced_primary_marks() {
    use plan::{Open, Role, SlotSet, Step, Who};
    let (mut probed, mut plan) = (crate::testing::healthy(3, 2), plan::Plan::default());
    let waits_for = |probed: &Probed, plan: &plan::Plan| super::half_moved::on_the_way(&probed.observed, plan);
    assert_eq!(waits_for(&probed, &plan), None);
    // It keeps its mark for as long as nobody gives it up.
    let former = node(&mut probed, 0, 1);
    former.role = Role::Primary { slots: SlotSet::EMPTY };
    former.open.insert(9, Open::Importing(id(1, 0)));
    assert_eq!(waits_for(&probed, &plan), None);
    let [from, to] =
        [(1, 0), (2, 0)].map(|(shard, ordinal)| Who { pod: Pod::new(shard, ordinal), id: id(shard, ordinal) });
    plan.steps.push(Step::Move { from, to, slots: SlotSet::range(8, 9) });
    assert_eq!(waits_for(&probed, &plan).as_deref(), Some("2 slots move from 1-0 to 2-0"));
    node(&mut probed, 1, 0).open.insert(9, Open::Migrating(id(2, 0)));
    assert_eq!(waits_for(&probed, &plan).as_deref(), Some("slot 9 is half moved from 1-0 to 2-0"));
}

#[test]
fn what_is_half_moved_is_told_with_its_ends_and_with_what_it_waits_for() {
    use plan::Open;
    let mut scene = Scene::healthy();
    node(&mut scene.probed, 1, 0).open.extend([(7, Open::Importing(id(0, 0))), (9, Open::Importing(id(0, 0)))]);
    // Of the second slot only the target knows.
    node(&mut scene.probed, 0, 0).open.insert(7, Open::Migrating(id(1, 0)));
    node(&mut scene.probed, 2, 0).open.insert(16_000, Open::Migrating(id(9, 9)));
    let open = "2 slots, the first of them 7, are half moved from 0-0 to 1-0; slot 16000 is half moved from 2-0 to node 9a9a9a9a";
    assert_eq!(scene.says("Ready"), said(Status::False, "SlotsMoving", open));
    let full = Waiting::Room {
        pod: Pod::new(1, 0),
        from: Pod::new(0, 0),
        slots: 2,
        half_moved: true,
        gives: true,
        room: 70 << 10,
        needs: 3 << 20,
    };
    scene.plan.waiting.push(full);
    scene.plan.slots_left = 12;
    let wait = "2 half-moved slots of 0-0 wait for room in 1-0: it is 64 KiB below its maxmemory, 3 MiB are needed; raise it \
                (spec.memory.maxBytes or spec.memory.maxPercent, which count at once), delete keys, or set spec.shards back: what has moved \
                then comes back";
    let text = format!("{open}; 12 slots still have to move: {wait}");
    assert_eq!(scene.says("Ready"), said(Status::False, "SlotsMoving", &text));
    assert_eq!(scene.says("Degraded"), said(Status::True, "NoRoom", wait));
}

#[test]
fn a_move_that_is_held_is_told_with_who_holds_it() {
    let mut scene = Scene::healthy();
    let [from, to] = [0, 1].map(|shard| plan::Who { pod: Pod::new(shard, 0), id: id(shard, 0) });
    scene.plan.steps = vec![plan::Step::Move { from, to, slots: plan::SlotSet::range(3, 4) }];
    scene.plan.slots_left = 2;
    scene.held = vec!["slots wait for replica 1-1".to_owned()];
    let ready = "2 slots still have to move; slots wait for replica 1-1";
    assert_eq!(scene.says("Ready"), said(Status::False, "SlotsMoving", ready));
    let progressing = "slots wait for replica 1-1; next: move 2 slots from 0-0 to 1-0: 3-4";
    assert_eq!(scene.says("Progressing"), said(Status::True, "Working", progressing));
    assert_eq!(scene.says("Degraded").0, Status::False);
    assert_eq!(scene.report().plan.unwrap().waiting.as_deref(), Some("slots wait for replica 1-1"));
}
