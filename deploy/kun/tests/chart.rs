//! The rights that the chart asks for are those that the code says it needs: computed here, kept beside the chart so that
//! whoever installs it can read them, and compared. `KUN_GOLDEN=write` writes them anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::path::Path;

use apiserver::registry::access::Part;
use apiserver::registry::{Registry, host, rbac, redis};
use serde_json::{Value, json};

fn registry() -> Registry {
    redis::registry().unwrap().and(host::registry().unwrap())
}

/// Leases are kept in one namespace only; everything else is wherever users make clusters.
fn split(rules: Vec<Value>) -> (Vec<Value>, Vec<Value>) {
    rules.into_iter().partition(|rule| rule["apiGroups"][0] != "coordination.k8s.io")
}

#[test]
fn the_rights_of_the_chart_are_computed_from_the_registry() {
    let (everywhere, mut own) = split(rbac::part_rules(&registry(), Part::Controller));
    own.extend(kun::cluster::certs::rules());
    let controller = json!({"everywhere": everywhere, "own": own});
    let webhook = json!({"everywhere": rbac::part_rules(&registry(), Part::Webhook)});
    let server = json!({"everywhere": apiserver::delegate::rights::rules()});
    let users = json!({"roles": rbac::cluster_roles(&redis::registry().unwrap(), types::GROUP)});
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chart/rbac");
    for (name, computed) in [("apiserver", server), ("controller", controller), ("users", users), ("webhook", webhook)]
    {
        let (path, text) =
            (folder.join(name).with_extension("json"), serde_json::to_string_pretty(&computed).unwrap() + "\n");
        if std::env::var_os("KUN_GOLDEN").is_some_and(|how| how == "write") {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}: KUN_GOLDEN=write writes it anew");
    }
}

#[test]
fn no_part_may_do_everything_anywhere_nor_give_rights_away() {
    for part in [Part::Controller, Part::Webhook] {
        for rule in rbac::part_rules(&registry(), part) {
            let text = rule.to_string();
            assert!(!text.contains('*'), "{text}");
            for refused in ["nodes", "roles", "rolebindings", "impersonate", "escalate", "\"bind\""] {
                assert!(!text.contains(refused), "{text}");
            }
        }
    }
}
