//! A primary that ends a moment after its replica has met it.

use plan::{Desired, Pod, SlotSet};
use resp::{Outcome, Role};

use super::created;

/// Before, it was asked for ever: Redis says OK, and stands for no election where its own table gives its primary no slot.
#[tokio::test]
async fn a_copy_that_never_heard_of_its_primarys_slots_leads_with_all_it_has() {
    let mut fleet = created(153, 3, 2).await;
    let (primary, copy) = (Pod::new(0, 0), Pod::new(0, 1));
    let mut client = fleet.client();
    let keys: Vec<String> = (0..60).map(|n| format!("key:{n}")).collect();
    for key in &keys {
        assert!(matches!(client.set(key, key).await, Outcome::Acked(_)));
    }
    let mut replica = fleet.servers[&copy].operator().await;
    let gone = fleet.servers[&primary].id().await;
    let theirs = fleet.servers[&primary].operator().await.call(&["DBSIZE"]).await.unwrap();
    let begun = std::time::Instant::now();
    while replica.call(&["DBSIZE"]).await.unwrap() != theirs {
        assert!(begun.elapsed() < hung::change(), "the copy is not whole");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    // As it is until the first ping that comes after its copy.
    fleet.servers[&primary].hold();
    let table = replica.cluster_nodes().await.unwrap();
    let line = table.iter().find(|line| line.id.as_str() == gone.to_string()).unwrap();
    let slots: SlotSet = line.slots.iter().flat_map(|range| range.first..=range.last).collect();
    fleet.servers[&copy].unhears(&slots).await;
    fleet.servers.get_mut(&primary).unwrap().wipe_closed().await;
    let keeps_nothing =
        Desired { restart_keeps_data: false, adopt_lost_slots: true, has_volumes: false, ..fleet.desired(3, 1) };
    fleet.until_satisfied(&keeps_nothing).await;
    assert!(matches!(replica.role().await, Ok(Role::Primary { .. })), "the copy leads");
    for key in &keys {
        assert_eq!(client.get(key).await.unwrap().as_deref(), Some(key.as_bytes()), "{key}");
    }
}
