//! KUN on a real Kubernetes of three nodes, installed by its chart: what clusters do to it and it to them, while a writer
//! records every acknowledgement.
//!
//! One cluster serves all scenarios, in the order in which they stand here; each leaves `orders` Ready. There is no harness
//! around them: `cargo test -p tests --test installed -- node_lost webhook` runs those whose names contain one of the words.
//! Times of minutes are seconds here; `make soak` takes them in full. With KUBECONFIG set they run on that cluster, as far as they
//! break nothing of it that is not KUN's.

#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

mod account;
mod company;
mod elsewhere;
mod engines;
mod nodes;
mod outage;
mod rights;
mod scenario;
mod store;
mod tenants;
mod upkeep;
mod volumes;

use std::process::ExitCode;

use scenario::{Scenario, scenario};

/// All of them, in order.
const SCENARIOS: &[Scenario] = &[
    scenario!(AnyCluster, upkeep::a_cluster_that_is_applied_becomes_ready),
    scenario!(OurOwn, account::at_rest_nothing_is_asked_but_about_leases),
    scenario!(AnyCluster, upkeep::scaling_three_five_three),
    scenario!(AnyCluster, upkeep::an_autoscaler_scales_shards),
    scenario!(AnyCluster, upkeep::actions_are_carried_out),
    scenario!(OurOwn, engines::redis_eight_is_written_to_and_hands_over),
    scenario!(OurOwn, engines::valkey_eight_hands_over_and_becomes_nine),
    scenario!(OurOwn, engines::valkey_nine_hands_over_grows_and_is_backed_up),
    scenario!(OurOwn, engines::an_image_of_another_engine_is_not_started_and_says_so),
    scenario!(OurOwn, volumes::volumes_grow_where_they_may_and_stop_nothing_where_they_may_not),
    scenario!(AnyCluster, upkeep::what_others_change_is_put_right_and_what_they_add_is_kept),
    scenario!(AnyCluster, upkeep::what_is_called_as_ours_would_be_is_left_alone),
    scenario!(AnyCluster, company::a_resource_quota_holds_against_parallel_creates),
    scenario!(AnyCluster, company::foreground_background_and_orphan_deletion_are_the_garbage_collectors),
    scenario!(AnyCluster, company::programs_of_others_follow_our_objects),
    scenario!(OurOwn, company::six_hundred_foreign_secrets_are_not_kept),
    scenario!(AnyCluster, tenants::who_may_edit_clusters_reaches_nothing_else_by_them),
    scenario!(AnyCluster, tenants::a_proxy_that_nobody_named_is_refused),
    scenario!(OurOwn, upkeep::draining_the_node_with_most_primaries_hands_them_over),
    scenario!(OurOwn, nodes::members_that_must_not_share_a_node_wait_for_another),
    scenario!(OurOwn, nodes::pods_run_where_they_are_placed_and_move_when_that_changes),
    scenario!(OurOwn, nodes::a_kubelet_and_a_containerd_that_are_killed_restart_no_pod),
    scenario!(OurOwn, nodes::primaries_are_spread_over_the_nodes),
    scenario!(OurOwn, nodes::a_node_that_is_lost_costs_no_availability_and_comes_back),
    scenario!(OurOwn, outage::kubernetes_away_while_a_primary_dies),
    scenario!(AnyCluster, outage::our_api_away_hangs_nobody_longer_than_it_is_away),
    scenario!(OurOwn, outage::our_api_hung_is_ended_by_its_kubelet),
    scenario!(AnyCluster, outage::webhooks_away_let_deletions_and_status_pass),
    scenario!(AnyCluster, outage::all_pods_of_kun_deleted_at_once),
    scenario!(AnyCluster, outage::all_pods_of_redis_deleted_at_once_come_back_with_other_addresses),
    scenario!(OurOwn, outage::two_controllers_at_once_do_no_harm),
    scenario!(AnyCluster, company::a_namespace_with_twenty_clusters_goes),
    scenario!(OurOwn, store::a_store_that_was_wiped_costs_nothing_and_owners_come_back),
    scenario!(OurOwn, store::a_store_that_went_back_is_noticed_and_nothing_is_touched),
    scenario!(OurOwn, rights::a_missing_right_is_named_and_asked_for_ever_more_seldom),
    scenario!(AnyCluster, rights::a_server_that_may_not_ask_says_so_and_lets_nobody_in),
    scenario!(OurOwn, account::authorities_are_exchanged_without_a_failed_request),
    scenario!(AnyCluster, upkeep::an_upgrade_and_a_rollback_restart_no_redis_pod),
    scenario!(AnyCluster, upkeep::taking_kun_away_and_back_restarts_no_redis_pod),
    scenario!(OurOwn, elsewhere::etcd_two_api_servers_and_cert_manager_take_over_and_give_back),
    scenario!(OurOwn, account::what_is_allowed_is_what_is_used),
];

#[tokio::main]
async fn main() -> ExitCode {
    scenario::run("installed", SCENARIOS).await
}
