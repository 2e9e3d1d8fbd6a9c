//! Wakes the keeper when somebody touches what it looks after. Only names and versions are followed.

use std::fmt::Debug;
use std::sync::Arc;

use controller::follow::Refused;
use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::Options;

/// What wakes.
pub(super) struct Wake {
    notify: Arc<Notify>,
    /// Ends with us.
    _watches: JoinSet<()>,
}

impl Wake {
    /// Follows every object that the options name.
    pub(super) fn follow(client: &Client, options: &Options) -> Self {
        let mut wake = Self { notify: Arc::default(), _watches: JoinSet::new() };
        let secrets = [&options.authority, &options.agents_authority];
        for name in secrets.into_iter().chain(&options.agents_from).chain(options.serving.keys()) {
            wake.on(Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), &options.namespace), name);
        }
        options
            .api_services
            .iter()
            .for_each(|name| wake.on(Api::<PartialObjectMeta<APIService>>::all(client.clone()), name));
        for name in &options.webhooks {
            wake.on(Api::<PartialObjectMeta<MutatingWebhookConfiguration>>::all(client.clone()), name);
            wake.on(Api::<PartialObjectMeta<ValidatingWebhookConfiguration>>::all(client.clone()), name);
        }
        wake
    }

    fn on<K>(&mut self, api: Api<PartialObjectMeta<K>>, name: &str)
    where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + serde::de::DeserializeOwned + 'static,
    {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let (notify, name) = (Arc::clone(&self.notify), name.to_owned());
        let mut events = Box::pin(watcher(api, config).default_backoff());
        self._watches.spawn(async move {
            let mut refused = Refused::default();
            while let Some(event) = events.next().await {
                refused.wait(&event).await;
                match event {
                    Ok(_) => notify.notify_one(),
                    Err(error) => tracing::warn!(name, error = crate::log::chain(&error), "changes are not seen now"),
                }
            }
        });
    }

    /// Forgets what happened before a look at everything.
    pub(super) fn clear(&self) {
        // A permit of before is taken; what comes from here on leaves a new one.
        let _ = futures::FutureExt::now_or_never(self.notify.notified());
    }

    /// Until somebody touched something.
    pub(super) async fn woken(&self) {
        self.notify.notified().await;
    }
}
