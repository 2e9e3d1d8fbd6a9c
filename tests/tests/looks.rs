//! What cannot be undone is done on what is true now: a step that moves a role or ends a pod, on real redis-servers, when the world has
//! changed since the members were looked at.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::{Duration, Instant};

use controller::probe::{Container, Probed};
use plan::{FailoverHow, NodeId, Plan, Pod, RestartAs, Seen, SlotSet, Step, Who};
use resp::{Outcome, Role};
use serde_json::json;
use tests::fleet::Fleet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PRIMARY: Pod = Pod { shard: 0, ordinal: 0 };
const REPLICA: Pod = Pod { shard: 0, ordinal: 1 };

/// Two shards of two whose volumes keep what is written.
async fn created(net: u8) -> Fleet {
    let spec = json!({"shards": 2, "replicasPerShard": 1, "storage": {"size": "1Gi"}, "persistence": {"appendOnly": "EverySec"}});
    let mut fleet = Fleet::start(net, 2, 2, spec).await;
    let desired = fleet.desired(2, 1);
    fleet.until_made(&desired).await;
    fleet
}

fn id(probed: &Probed, pod: Pod) -> NodeId {
    match &probed.observed.members[&pod].seen {
        Seen::Node(node) => node.id,
        other => panic!("{pod} is {other:?}"),
    }
}

fn plan(step: Step) -> Plan {
    Plan { steps: vec![step], ..Plan::default() }
}

fn hand_over(probed: &Probed, how: FailoverHow) -> Plan {
    let replica = Who { pod: REPLICA, id: id(probed, REPLICA) };
    plan(Step::Failover { replica, primary: id(probed, PRIMARY), how, over: None, unheard: SlotSet::EMPTY })
}

fn restart_replica(probed: &Probed) -> Plan {
    plan(Step::Restart { pod: REPLICA, expect: RestartAs::Replica(id(probed, REPLICA)) })
}

/// The replica has noticed that its primary is gone.
async fn until_unlinked(fleet: &Fleet) {
    let (mut replica, begun) = (fleet.servers[&REPLICA].operator().await, Instant::now());
    while replica.info(&["replication"]).await.unwrap().get("master_link_status") == Some("up") {
        assert!(begun.elapsed() < hung::change(), "the link stays up");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What kept a plan from being carried out.
async fn refusal(fleet: &mut Fleet, plan: &Plan, probed: &Probed) -> String {
    fleet.carry_out(plan, probed).await.expect_err("it was carried out")
}

/// Before, a step was carried out however long ago its members had been looked at.
#[tokio::test]
async fn no_role_moves_on_a_look_that_is_too_old() {
    let mut fleet = created(60).await;
    let probed = fleet.look_at_all().await;
    fleet.aged = Duration::from_secs(11);
    let why =
        "it was planned on a look that began 11000 ms ago, more than 10000 ms: the members are looked at anew first";
    assert_eq!(refusal(&mut fleet, &hand_over(&probed, FailoverHow::Coordinated), &probed).await, why);
    assert!(matches!(fleet.servers[&PRIMARY].operator().await.role().await, Ok(Role::Primary { .. })));
    fleet.aged = Duration::ZERO;
    // Before, the shard had to rest from an order that nobody was given.
    let probed = fleet.look_at_all().await;
    assert_eq!(probed.observed.failovers_asked, std::collections::BTreeMap::new());
    fleet.promote(&hand_over(&probed, FailoverHow::Coordinated), &probed, REPLICA).await;
}

/// Before, it became the primary, and its file held what it had had a minute ago.
#[tokio::test]
async fn no_role_moves_to_a_member_whose_file_has_fallen_behind_since() {
    let mut fleet = created(61).await;
    let mut client = fleet.client();
    for n in 0..400 {
        assert!(matches!(client.set(&format!("k{n}"), "v").await, Outcome::Acked(_)));
    }
    let probed = fleet.look_at_all().await;
    let mut replica = fleet.servers[&REPLICA].operator().await;
    for (name, value) in [("rdb-key-save-delay", "300000"), ("appendonly", "no"), ("appendonly", "yes")] {
        replica.config_set(name, value).await.unwrap();
    }
    let why = "the append-only file of 0-1 does not hold by now what it has in memory";
    assert_eq!(refusal(&mut fleet, &hand_over(&probed, FailoverHow::Coordinated), &probed).await, why);
}

/// Only a real server that starts anew shows another history under the same node ID.
#[tokio::test]
async fn a_copy_that_was_read_from_disk_since_is_not_promoted_for_the_one_that_was_seen() {
    let mut fleet = created(62).await;
    let probed = fleet.look_at_all().await;
    for pod in [PRIMARY, REPLICA] {
        fleet.servers.get_mut(&pod).unwrap().kill().await;
    }
    fleet.servers.get_mut(&REPLICA).unwrap().run().await;
    let refused = refusal(&mut fleet, &hand_over(&probed, FailoverHow::Force), &probed).await;
    assert!(refused.starts_with("0-1 is not promoted: its copy is"), "{refused:?}");
}

/// Until all of it has arrived it has what it had before, and that is what a person means who names it. Before, no order helped; and whoever was seen
/// to have everything is still not meant once it is sent everything anew.
#[tokio::test]
async fn a_replica_that_is_sent_everything_leads_where_it_was_seen_so() {
    let mut fleet = created(79).await;
    let mut client = fleet.client();
    for n in 0..400 {
        assert!(matches!(client.set(&format!("k{n}"), "v").await, Outcome::Acked(_)));
    }
    let before = fleet.look_at_all().await;
    fleet.servers[&PRIMARY].operator().await.config_set("rdb-key-save-delay", "1000000").await.unwrap();
    let replica = fleet.servers.get_mut(&REPLICA).unwrap();
    replica.kill().await;
    replica.run().await;
    let mut copy = replica.operator().await;
    let begun = Instant::now();
    while copy.info(&["persistence"]).await.unwrap().flag("loading") != Some(false) {
        assert!(begun.elapsed() < hung::change(), "it does not load what it has");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let keys = copy.call(&["DBSIZE"]).await.unwrap();
    while copy.info(&["replication"]).await.unwrap().flag("master_sync_in_progress") != Some(true) {
        assert!(begun.elapsed() < hung::change(), "nothing is sent");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let alone = [REPLICA, Pod::new(1, 0), Pod::new(1, 1)];
    fleet.servers[&PRIMARY].hold();
    let probed = fleet.look_at(&alone).await;
    let primary = id(&before, PRIMARY);
    let promote = |probed: &Probed| {
        let replica = Who { pod: REPLICA, id: id(probed, REPLICA) };
        plan(Step::Failover { replica, primary, how: FailoverHow::Takeover, over: None, unheard: SlotSet::EMPTY })
    };
    let why = "0-1 is not in sync with its primary";
    assert_eq!(refusal(&mut fleet, &promote(&before), &before).await, why);
    let begun = Instant::now();
    // Once nothing has come for a while it is known not to live.
    let ago = |info: resp::Info| info.number("master_sync_last_io_seconds_ago");
    while ago(copy.info(&["replication"]).await.unwrap()).is_none_or(|ago| ago < 3) {
        assert!(begun.elapsed() < hung::change(), "it is sent something all the time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    fleet.promote(&promote(&probed), &probed, REPLICA).await;
    assert_eq!(copy.call(&["DBSIZE"]).await.unwrap(), keys);
    assert!(matches!(copy.role().await, Ok(Role::Primary { .. })));
    fleet.servers[&PRIMARY].go_on();
}

/// Only a server that is asked shows it: one that loads its data set tells nobody its name. Before, it counted as silent, and what its file has
/// beyond the copy went.
#[tokio::test]
async fn a_primary_that_loads_its_data_set_is_not_a_silent_one() {
    let mut fleet = created(69).await;
    let probed = fleet.look_at_all().await;
    let primary = fleet.servers.get_mut(&PRIMARY).unwrap();
    primary.kill().await;
    let listener = tokio::net::TcpListener::bind(primary.address).await.unwrap();
    let loading = "LOADING Redis is loading the dataset in memory";
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let mut says = "+OK\r\n".to_owned();
                while stream.read(&mut buffer).await.unwrap_or(0) > 0 && stream.write_all(says.as_bytes()).await.is_ok()
                {
                    says = format!("-{loading}\r\n");
                }
            });
        }
    });
    until_unlinked(&fleet).await;
    let why = format!("the primary {} may have started at 0-0 since: {loading}", id(&probed, PRIMARY).short());
    let (plan, begun) = (hand_over(&probed, FailoverHow::Force), Instant::now());
    let mut refused = refusal(&mut fleet, &plan, &probed).await;
    // On a machine that stands still for as long as it is asked it is silent; and nobody is there to vote.
    while refused.contains("was asked to take over") {
        assert!(begun.elapsed() < hung::change(), "{refused}");
        refused = refusal(&mut fleet, &plan, &probed).await;
    }
    assert_eq!(refused, why);
}

/// Between the end of a pod and the next one its place is empty. Before, the copy was promoted although the primary was about to start again with what
/// it had saved at its stop.
#[tokio::test]
async fn nobody_is_promoted_once_the_next_pod_of_the_primary_is_there() {
    let mut fleet = created(97).await;
    let before = fleet.look_at_all().await;
    fleet.servers.get_mut(&PRIMARY).unwrap().kill().await;
    until_unlinked(&fleet).await;
    let mut probed = fleet.look_at(&[REPLICA, Pod::new(1, 0), Pod::new(1, 1)]).await;
    probed.observed.members.get_mut(&PRIMARY).unwrap().seen = Seen::Absent;
    let mut places = fleet.places();
    let place = places.get_mut(&PRIMARY).unwrap();
    (place.container, place.uid) = (Container::None, None);
    let replica = Who { pod: REPLICA, id: id(&probed, REPLICA) };
    let primary = id(&before, PRIMARY);
    let plan =
        plan(Step::Failover { replica, primary, how: FailoverHow::Takeover, over: None, unheard: SlotSet::EMPTY });
    let refused = fleet.carry_out_at(&places, &plan, &probed).await.map(drop);
    assert_eq!(refused, Err("the pod orders-0-0 is another than the one that was looked at".to_owned()));
    fleet.pods.end("orders-0-0");
    fleet.carry_out_at(&places, &plan, &probed).await.unwrap();
    assert!(matches!(fleet.servers[&REPLICA].operator().await.role().await, Ok(Role::Primary { .. })));
}

/// Before, the pod that had come in its place was deleted only if its uid was that of the look; now no member that leaves or restarts is judged
/// by a look at another pod.
#[tokio::test]
async fn a_pod_is_restarted_only_while_it_is_the_one_that_was_looked_at() {
    let mut fleet = created(63).await;
    let probed = fleet.look_at_all().await;
    let (places, plan) = (fleet.places(), restart_replica(&probed));
    fleet.pods.make("orders-0-1", "another");
    let refused = fleet.carry_out_at(&places, &plan, &probed).await.map(drop);
    assert_eq!(refused, Err("the pod orders-0-1 is another than the one that was looked at".to_owned()));
    assert_eq!(fleet.pods.deleted(), [""; 0]);
    assert_eq!(fleet.carry_out(&plan, &probed).await.map(drop), Ok(()));
    assert_eq!(fleet.pods.deleted(), ["orders-0-1"]);
}

/// Only a real hand-over between look and step shows that the role is asked for again.
#[tokio::test]
async fn a_replica_that_leads_by_now_is_not_restarted() {
    let mut fleet = created(64).await;
    let probed = fleet.look_at_all().await;
    fleet.takes_over(REPLICA).await;
    let plan = restart_replica(&probed);
    assert_eq!(refusal(&mut fleet, &plan, &probed).await, "0-1 owns 8192 slots");
    assert_eq!(fleet.pods.deleted(), [""; 0]);
}

/// Before, a link that was up was enough: the primary's own file may hold nothing while the copy is away.
#[tokio::test]
async fn a_replica_is_not_restarted_beside_a_primary_whose_file_has_fallen_behind() {
    let mut fleet = created(65).await;
    let mut client = fleet.client();
    for n in 0..400 {
        assert!(matches!(client.set(&format!("k{n}"), "v").await, Outcome::Acked(_)));
    }
    let probed = fleet.look_at_all().await;
    let mut primary = fleet.servers[&PRIMARY].operator().await;
    for (name, value) in [("rdb-key-save-delay", "300000"), ("appendonly", "no"), ("appendonly", "yes")] {
        primary.config_set(name, value).await.unwrap();
    }
    let why = "the append-only file of 0-0 does not hold by now what it has in memory";
    let plan = restart_replica(&probed);
    assert_eq!(refusal(&mut fleet, &plan, &probed).await, why);
    assert_eq!(fleet.pods.deleted(), [""; 0]);
}

/// A single member whose keys nobody else has, and the order to restart it.
async fn alone(net: u8, spec: serde_json::Value) -> (Fleet, Probed, Plan) {
    let mut fleet = Fleet::start(net, 1, 1, spec).await;
    let desired = fleet.desired(1, 0);
    fleet.until_made(&desired).await;
    let mut client = fleet.client();
    for n in 0..400 {
        assert!(matches!(client.set(&format!("k{n}"), "v").await, Outcome::Acked(_)));
    }
    let probed = fleet.look_at_all().await;
    let restart = plan(Step::Restart { pod: PRIMARY, expect: RestartAs::OnlyCopy(id(&probed, PRIMARY)) });
    (fleet, probed, restart)
}

/// Before, it was asked nothing: nobody else has what it holds.
#[tokio::test]
async fn a_single_server_whose_file_has_fallen_behind_is_not_restarted() {
    let spec = json!({"mode": "Standalone", "storage": {"size": "1Gi"}, "persistence": {"appendOnly": "EverySec"}});
    let (mut fleet, probed, restart) = alone(82, spec).await;
    let mut server = fleet.servers[&PRIMARY].operator().await;
    for (name, value) in [("rdb-key-save-delay", "300000"), ("appendonly", "no"), ("appendonly", "yes")] {
        server.config_set(name, value).await.unwrap();
    }
    let why = "the append-only file of 0-0 does not hold by now what it has in memory";
    assert_eq!(refusal(&mut fleet, &restart, &probed).await, why);
    assert_eq!(fleet.pods.deleted(), [""; 0]);
}

/// Only a real server shows what a snapshot that fails leaves in INFO. Before, it was deleted, and its stop could not save either.
#[tokio::test]
async fn an_only_copy_whose_last_snapshot_failed_is_not_restarted() {
    let persistence = json!({"appendOnly": "Off", "snapshots": [{"seconds": 3600, "changes": 1}]});
    let spec = json!({"shards": 1, "replicasPerShard": 0, "storage": {"size": "1Gi"}, "persistence": persistence});
    let (mut fleet, probed, restart) = alone(83, spec).await;
    let server = &fleet.servers[&PRIMARY];
    server.takes_no_snapshot();
    let mut redis = server.operator().await;
    for (name, value) in [("appendonly", "no"), ("save", "1 1")] {
        redis.config_set(name, value).await.unwrap();
    }
    let begun = Instant::now();
    while redis.info(&["persistence"]).await.unwrap().get("rdb_last_bgsave_status") != Some("err") {
        assert!(begun.elapsed() < hung::change(), "it saves all the same");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let why = "the last snapshot of 0-0 failed by now (rdb_last_bgsave_status:err), and its stop has to save one";
    assert_eq!(refusal(&mut fleet, &restart, &probed).await, why);
    assert_eq!(fleet.pods.deleted(), [""; 0]);
}

/// Before, what it said was kept up to 128 MB for each answer, of as many members as are asked at the same time.
#[tokio::test]
async fn a_member_that_says_too_much_is_unknown_and_told_of() {
    let mut fleet = created(66).await;
    let pod = Pod::new(1, 1);
    let server = fleet.servers.get_mut(&pod).unwrap();
    server.kill().await;
    let listener = tokio::net::TcpListener::bind(server.address).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let says = [b"+OK\r\n".as_slice(), b"$40\r\n0123456789012345678901234567890123456789\r\n$2097153\r\n"];
            for words in says {
                if stream.read(&mut buffer).await.unwrap_or(0) == 0 || stream.write_all(words).await.is_err() {
                    break;
                }
            }
            // Until who asks has hung up.
            while stream.read(&mut buffer).await.unwrap_or(0) > 0 {}
        }
    });
    // A look that the machine stood still in ends before it has read that much.
    let begun = Instant::now();
    let probed = loop {
        let probed = fleet.look().await;
        if probed.unread.contains_key(&pod) {
            break probed;
        }
        assert!(begun.elapsed() < hung::change(), "it is not told of: {:?}", probed.observed.members[&pod].seen);
    };
    let seen = &probed.observed.members[&pod].seen;
    assert!(matches!(seen, Seen::Unknown { .. }), "{seen:?}");
    let why = &probed.unread[&pod];
    assert!(why.contains("a bulk string of 2097153 exceeds the limit of 2097152"), "{why}");
}

/// Before, only the table of who takes them was asked, which had not heard of it: two took writes of the same slots.
#[tokio::test]
async fn slots_that_somebody_was_given_since_the_look_are_given_to_nobody_else() {
    let mut fleet = Fleet::start(78, 2, 1, json!({"shards": 2, "replicasPerShard": 0})).await;
    let (taker, other) = (Pod::new(0, 0), Pod::new(1, 0));
    let probed = fleet.look_at_all().await;
    fleet.servers[&other].operator().await.call(&["CLUSTER", "ADDSLOTSRANGE", "5", "9"]).await.unwrap();
    let node = Who { pod: taker, id: id(&probed, taker) };
    let adopt = |first, last| plan(Step::Adopt { node, owner: None, slots: SlotSet::range(first, last) });
    let why =
        format!("{} owns slots by now that {node} was to be given: 5-7", Who { pod: other, id: id(&probed, other) });
    assert_eq!(refusal(&mut fleet, &adopt(0, 7), &probed).await, why);
    assert_eq!(fleet.carry_out(&adopt(0, 4), &probed).await.map(drop), Ok(()));
    let lines = fleet.servers[&taker].operator().await.cluster_nodes().await.unwrap();
    assert!(lines[0].owns(0) && lines[0].owns(4) && !lines[0].owns(5));
}
