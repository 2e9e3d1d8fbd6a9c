//! Follows the ConfigMap that says whom to believe. Until it was read once, nobody is believed; what cannot be read
//! later leaves the last trust in place, and says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::time::sleep;

use super::refused::Refused;
use crate::filter::authn::Authenticator;
use crate::filter::authn::trust::{AnyName, NAME, NAMESPACE, Trust};

/// Follows the trust of a cluster.
pub struct FollowTrust {
    client: Client,
    authenticator: Arc<Authenticator>,
    any_name: AnyName,
    is_known: AtomicBool,
}

impl FollowTrust {
    /// Follows for `authenticator`.
    #[must_use]
    pub fn new(client: Client, authenticator: Arc<Authenticator>, any_name: AnyName) -> Arc<Self> {
        Arc::new(Self { client, authenticator, any_name, is_known: AtomicBool::new(false) })
    }

    /// Whether it is known whom to believe.
    ///
    /// # Errors
    /// Why the server is not ready.
    pub fn check(&self) -> Result<(), String> {
        if self.is_known.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(format!("the ConfigMap {NAMESPACE}/{NAME} was not read yet"))
        }
    }

    /// Follows until dropped.
    pub async fn run(&self) {
        let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), NAMESPACE);
        let mut events = std::pin::pin!(watcher::watcher(api, config).default_backoff());
        let mut is_listed = false;
        let mut refused = Refused::default();
        while let Some(event) = events.next().await {
            let pause = refused.pause(&event);
            match event {
                Ok(Event::Init) => is_listed = false,
                Ok(Event::InitApply(map) | Event::Apply(map)) => {
                    is_listed = true;
                    self.take(&map.data.unwrap_or_default());
                }
                Ok(Event::InitDone) if !is_listed => self.complain("it does not exist"),
                Ok(Event::InitDone) => {}
                Ok(Event::Delete(_)) => self.complain("it was deleted"),
                Err(error) => self.complain(&error.to_string()),
            }
            sleep(pause).await;
        }
    }

    fn take(&self, data: &BTreeMap<String, String>) {
        match Trust::of_config_map(data, self.any_name) {
            Ok(trust) => {
                if trust.is_mixed() {
                    tracing::warn!(
                        "clients and proxies have an authority in common: only the names of proxies keep a client from being anybody"
                    );
                }
                self.authenticator.believe(trust);
                self.is_known.store(true, Ordering::Release);
                tracing::info!("whom to believe was read from {NAMESPACE}/{NAME}");
            }
            Err(error) => self.complain(&error.to_string()),
        }
    }

    fn complain(&self, reason: &str) {
        let known = self.is_known.load(Ordering::Acquire);
        let so = if known { "the last one stays in use" } else { "nobody is let in" };
        tracing::error!(reason, "whom to believe cannot be read from {NAMESPACE}/{NAME}: {so}");
    }
}
