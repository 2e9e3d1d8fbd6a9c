//! What nobody of ours may ever do (T10): commands that wipe a server, and the end of a claim. Counts of a process end with it: what one
//! that was killed had been told is not seen.

use std::fs;

use ::tests::{fixture::Fixture, oracle};
use anyhow::{Result, ensure};
use serde_json::Value;
use types::names;

/// By the names under which Redis counts; a command with these words before it counts, too.
const COMMANDS: &[&str] = &[
    "flushall",
    "flushdb",
    "swapdb",
    "cluster|reset",
    "cluster|flushslots",
    "debug",
    "eval",
    "evalsha",
    "fcall",
    "function|delete",
    "function|flush",
    "function|restore",
    "script|",
    "module|",
    "keys",
    "replicaof",
    "slaveof",
];

/// No living server was told such a command, allowed or not, and no claim was deleted by us: those of shards that are scaled away stay, too.
pub(super) async fn nothing(fixture: &Fixture) -> Result<()> {
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", names::USER_OPERATOR).await?;
    for (pod, address) in fixture.addresses().await? {
        let stats = oracle::open(address, &credentials).await?.info(&["commandstats"]).await?;
        for command in COMMANDS {
            // Of those with subcommands each counts for itself.
            let own = format!("cmdstat_{command}");
            let found = stats.iter().find(|(name, _)| *name == own || (own.ends_with('|') && name.starts_with(&own)));
            ensure!(found.is_none(), "T10: {pod} was told {found:?}");
        }
    }
    let audit = fs::read_to_string(fixture.kun.data().join("audit.log"))?;
    let lines = audit.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let odd: Vec<Value> = lines.filter(deletes_a_claim).collect();
    ensure!(odd.is_empty(), "T10: claims were deleted: {odd:#?}");
    Ok(())
}

/// Also one that was refused. Not that of a person, who has kubectl.
fn deletes_a_claim(line: &Value) -> bool {
    let is_a_person = line["userAgent"].as_str().is_some_and(|agent| agent.starts_with("kubectl/"));
    let deletes = line["verb"].as_str().is_some_and(|verb| verb.starts_with("delete"));
    !is_a_person && deletes && line["resource"] == "persistentvolumeclaims" && line["namespace"] == "default"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_end_of_a_claim_counts_and_that_of_nothing_else() {
        let line = |verb: &str, resource: &str| json!({"verb": verb, "resource": resource, "namespace": "default"});
        assert!(deletes_a_claim(&line("delete", "persistentvolumeclaims")));
        assert!(deletes_a_claim(&line("deletecollection", "persistentvolumeclaims")));
        let mut persons = line("delete", "persistentvolumeclaims");
        persons["userAgent"] = json!("kubectl/v1.36.0 (linux/amd64)");
        assert!(!deletes_a_claim(&persons));
        assert!(!deletes_a_claim(&line("delete", "pods")));
        assert!(!deletes_a_claim(&line("patch", "persistentvolumeclaims")));
    }
}
