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
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(Error::Kubeconfig)?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(Error::Kubeconfig)?
        }
        None => kube::Config::incluster().map_err(Error::InCluster)?,
    };
    // Whoever asks knows for how long to be patient, and whether what was not answered may be sent again. kube's own retries
    // of 503 and 504 go on for minutes, tell nobody, and send a creation twice.
    config.default_retry = false;
    Client::try_from(config).map_err(Error::Client)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::api::ListParams;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_is_away_is_asked_once_and_whoever_asks_hears_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                while stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                    count.fetch_add(1, Ordering::SeqCst);
                    let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\naway";
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        );
        std::fs::write(&path, text).unwrap();
        let api = Api::<Pod>::all(client(Some(&path)).await.unwrap());
        assert!(api.list(&ListParams::default()).await.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}
