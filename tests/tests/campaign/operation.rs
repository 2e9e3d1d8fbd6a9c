//! What an operator asks for in a round.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Chance, Run, draw::SHARDS, engines};

/// What an operator does in a round.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Nothing,
    Scale,
    Failover,
    Restart,
    /// Another version of Redis, once in a campaign; where there is only one, another template.
    Upgrade,
    /// Another template.
    Template,
    Config,
    Backup,
    /// A pod is deleted, as `kubectl drain` does it.
    Drain,
}

impl Operation {
    pub(super) fn any(chance: &mut Chance) -> Self {
        let all = [
            Self::Nothing,
            Self::Scale,
            Self::Scale,
            Self::Failover,
            Self::Restart,
            Self::Upgrade,
            Self::Template,
            Self::Config,
            Self::Backup,
            Self::Drain,
        ];
        let index = usize::try_from(chance.below(all.len() as u64)).unwrap_or_default();
        all.get(index).copied().unwrap_or(Self::Nothing)
    }

    /// How many shards there are to be after it.
    pub(super) fn shards_after(self, shards: u16) -> u16 {
        if !matches!(self, Self::Scale) {
            return shards;
        }
        if shards == SHARDS { SHARDS + 1 } else { SHARDS }
    }
}

impl Run {
    /// Asks for the operation, and does not wait for it.
    pub(super) async fn begin(&mut self, operation: Operation, number: u64) -> Result<()> {
        let action = |body: Value| {
            let mut object = json!({"apiVersion": types::API_VERSION, "kind": "RedisOperation"});
            object["spec"] = body;
            object
        };
        self.shards = operation.shards_after(self.shards);
        match operation {
            Operation::Nothing => Ok(()),
            Operation::Scale => {
                let count = format!("--replicas={}", self.shards);
                self.fixture.kubectl.run(&["scale", "rdc", "orders", &count]).await.map(drop)
            }
            Operation::Failover => {
                let shard = number % u64::from(self.shards);
                self.ask("failover", &action(json!({"failover": {"shard": shard}}))).await
            }
            Operation::Restart => self.ask("restart", &action(json!({"restart": {}}))).await,
            Operation::Upgrade => self.patch(&json!({"spec": {"version": engines::NEXT}})).await,
            Operation::Template => {
                let memory = format!("{}Mi", 256 + number);
                self.patch(&json!({"spec": {"resources": {"limits": {"memory": memory}}}})).await
            }
            Operation::Config => {
                let config = json!({"hash-max-listpack-entries": (64 + number).to_string()});
                self.patch(&json!({"spec": {"config": config}})).await
            }
            Operation::Backup => {
                self.ask("backup", &json!({"apiVersion": types::API_VERSION, "kind": "RedisBackup"})).await
            }
            Operation::Drain => {
                let pod = format!("orders-{}-{}", number % u64::from(self.shards), number / 500);
                self.fixture.kubectl.run(&["delete", "pod", &pod, "--wait=false"]).await.map(drop)
            }
        }
    }

    async fn ask(&self, subresource: &str, body: &Value) -> Result<()> {
        let path = format!("/apis/redis.kun.io/v1/namespaces/default/redisclusters/orders/{subresource}");
        self.fixture.kubectl.create_at(&path, body).await.map(drop)
    }

    async fn patch(&self, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        self.fixture.kubectl.run(&["patch", "rdc", "orders", "--type=merge", "-p", &patch]).await.map(drop)
    }
}
