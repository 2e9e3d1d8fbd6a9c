//! How the parts reach the kube-apiserver.

use std::path::Path;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig.
    #[error("reading how to reach the kube-apiserver")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// The environment of a pod.
    #[error("reading how to reach the kube-apiserver from inside of a pod; outside of one, give --kubeconfig")]
    InCluster(#[source] kube::config::InClusterError),
    /// The client.
    #[error("preparing the client of the kube-apiserver")]
    Client(#[source] kube::Error),
}

/// A client by a kubeconfig; without one, as a pod does, whose token is read again when it changes.
pub(super) async fn client(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    let config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(Error::Kubeconfig)?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(Error::Kubeconfig)?
        }
        None => kube::Config::incluster().map_err(Error::InCluster)?,
    };
    Client::try_from(config).map_err(Error::Client)
}
