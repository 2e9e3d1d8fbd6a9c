//! KUN on a real Kubernetes of three nodes, installed by its chart: what clusters do to it and it to them, while a writer
//! records every acknowledgement.
//!
//! Most of their time they wait, so several clusters are at work at once. Who only touches what is in its own namespaces runs
//! beside others on one of them; who breaks KUN, nodes or the control plane has a cluster for itself for as long as it takes. Each
//! leaves `orders` Ready. There is no harness around them: `make build && cargo test --workspace --test installed -- node_lost webhook` runs
//! those whose names contain one of the words. Times of minutes are seconds here; `make soak` takes them in full. With KUN_TEST_CLUSTER=1 they
//! run on the cluster of KUBECONFIG, as far as they break nothing of it that is not KUN's.

#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

mod account;
mod company;
mod elsewhere;
mod engines;
mod nodes;
mod outage;
mod rights;
mod run;
mod scenario;
mod store;
mod tenants;
mod upkeep;
mod volumes;

use std::process::ExitCode;

use run::Last;
use scenario::{Scenario, scenario};

/// All of them. Of each kind those that take longest come first: nobody waits for the last one.
const SCENARIOS: &[Scenario] = &[
    scenario!(OurOwn, Nodes, nodes::a_node_that_is_lost_costs_no_availability_and_comes_back),
    scenario!(OurOwn, Nodes, nodes::pods_run_where_they_are_placed_and_move_when_that_changes),
    scenario!(OurOwn, Nodes, upkeep::draining_the_node_with_most_primaries_hands_them_over),
    scenario!(OurOwn, Nodes, nodes::members_that_must_not_share_a_node_wait_for_another),
    scenario!(OurOwn, Nodes, nodes::a_kubelet_and_a_containerd_that_are_killed_restart_no_pod),
    scenario!(OurOwn, Beside, engines::valkey_eight_hands_over_becomes_nine_grows_and_is_backed_up),
    scenario!(AnyCluster, Beside, upkeep::an_autoscaler_scales_three_to_five_shards_and_a_person_back),
    scenario!(OurOwn, Beside, volumes::volumes_grow_where_they_may_and_stop_nothing_where_they_may_not),
    scenario!(AnyCluster, Beside, company::a_namespace_full_of_clusters_goes),
    scenario!(AnyCluster, Beside, upkeep::actions_are_carried_out),
    scenario!(AnyCluster, Beside, upkeep::what_others_change_is_put_right_and_what_they_add_is_kept),
    scenario!(AnyCluster, Beside, outage::all_pods_of_redis_deleted_at_once_come_back_with_other_addresses),
    scenario!(AnyCluster, Beside, company::a_resource_quota_holds_against_parallel_creates),
    scenario!(OurOwn, Beside, engines::an_image_of_another_engine_is_not_started_and_says_so),
    scenario!(AnyCluster, Beside, upkeep::a_cluster_that_is_applied_becomes_ready),
    scenario!(AnyCluster, Beside, upkeep::what_is_called_as_ours_would_be_is_left_alone),
    scenario!(AnyCluster, Beside, company::foreground_background_and_orphan_deletion_are_the_garbage_collectors),
    scenario!(AnyCluster, Beside, tenants::who_may_edit_clusters_reaches_nothing_else_by_them),
    scenario!(AnyCluster, Beside, tenants::a_proxy_that_nobody_named_is_refused),
    scenario!(OurOwn, Alone, elsewhere::etcd_two_api_servers_and_cert_manager_take_over_and_give_back),
    scenario!(OurOwn, Alone, account::authorities_are_exchanged_without_a_failed_request),
    scenario!(OurOwn, Alone, rights::a_missing_right_is_named_and_asked_for_ever_more_seldom),
    scenario!(OurOwn, Alone, store::a_store_that_went_back_is_noticed_and_nothing_is_touched),
    scenario!(OurOwn, Alone, outage::kubernetes_away_while_a_primary_dies),
    scenario!(AnyCluster, Alone, outage::our_api_away_hangs_nobody_longer_than_it_is_away),
    scenario!(OurOwn, Alone, outage::two_controllers_at_once_do_no_harm),
    scenario!(OurOwn, Alone, store::a_store_that_was_wiped_costs_nothing_and_owners_come_back),
    scenario!(AnyCluster, Alone, rights::a_server_that_may_not_ask_says_so_and_lets_nobody_in),
    scenario!(AnyCluster, Alone, upkeep::an_upgrade_and_a_rollback_restart_no_redis_pod),
    scenario!(AnyCluster, Alone, upkeep::taking_kun_away_and_back_restarts_no_redis_pod),
    scenario!(AnyCluster, Alone, outage::webhooks_away_let_deletions_and_status_pass),
    scenario!(OurOwn, Alone, outage::our_api_hung_is_ended_by_its_kubelet),
    scenario!(AnyCluster, Alone, outage::all_pods_of_kun_deleted_at_once),
    scenario!(OurOwn, Alone, account::at_rest_nothing_is_asked_but_about_leases),
    scenario!(AnyCluster, Alone, company::programs_of_others_follow_our_objects),
    scenario!(OurOwn, Alone, company::six_hundred_foreign_secrets_are_not_kept),
];

/// What no single one shows.
const LAST: Last = Last {
    name: "what_is_allowed_is_what_is_used",
    gather: account::told,
    judge: account::what_is_allowed_is_what_is_used,
};

// Whoever kills a node or reads a log stands on his thread meanwhile.
#[tokio::main(worker_threads = 8)]
async fn main() -> ExitCode {
    run::run("installed", SCENARIOS, &LAST).await
}
