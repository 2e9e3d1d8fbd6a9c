//! Objects that say whom to believe. Pure.

use std::fmt::Debug;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::core::ClusterResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An object with a `caBundle`.
pub(super) trait Bundled:
    kube::Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
    /// As messages name it.
    const KIND: &'static str;
    /// Puts the bundle in; true if something changed.
    fn tell(&mut self, bundle: &ByteString) -> bool;
}

impl Bundled for APIService {
    const KIND: &'static str = "apiservice";

    fn tell(&mut self, bundle: &ByteString) -> bool {
        self.spec.as_mut().is_some_and(|spec| put(&mut spec.ca_bundle, bundle))
    }
}

impl Bundled for MutatingWebhookConfiguration {
    const KIND: &'static str = "mutatingwebhookconfiguration";

    fn tell(&mut self, bundle: &ByteString) -> bool {
        each(self.webhooks.iter_mut().flatten().map(|webhook| &mut webhook.client_config), bundle)
    }
}

impl Bundled for ValidatingWebhookConfiguration {
    const KIND: &'static str = "validatingwebhookconfiguration";

    fn tell(&mut self, bundle: &ByteString) -> bool {
        each(self.webhooks.iter_mut().flatten().map(|webhook| &mut webhook.client_config), bundle)
    }
}

fn each<'a>(configs: impl Iterator<Item = &'a mut WebhookClientConfig>, bundle: &ByteString) -> bool {
    // Each of them, also after one that changed.
    configs.map(|config| put(&mut config.ca_bundle, bundle)).filter(|changed| *changed).count() > 0
}

fn put(place: &mut Option<ByteString>, bundle: &ByteString) -> bool {
    let changed = place.as_ref() != Some(bundle);
    *place = Some(bundle.clone());
    changed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn every_webhook_of_a_configuration_is_told_and_nothing_else_changes() {
        let webhook = |name: &str, bundle: Option<&str>| {
            let service = json!({"namespace": "kun-system", "name": "kun-webhook", "path": "/mutate"});
            let config = match bundle {
                Some(bundle) => json!({"service": service, "caBundle": bundle}),
                None => json!({"service": service}),
            };
            json!({"name": name, "clientConfig": config, "sideEffects": "None", "admissionReviewVersions": ["v1"]})
        };
        let of = |webhooks: serde_json::Value| -> MutatingWebhookConfiguration {
            serde_json::from_value(json!({"metadata": {"name": "kun"}, "webhooks": webhooks})).unwrap()
        };
        let bundle = ByteString(b"pem".to_vec());
        let mut told = of(json!([webhook("a", Some("b2xk")), webhook("b", None)]));
        assert!(told.tell(&bundle));
        assert_eq!(told, of(json!([webhook("a", Some("cGVt")), webhook("b", Some("cGVt"))])));
        assert!(!told.tell(&bundle), "what is told already is not written again");
    }
}
