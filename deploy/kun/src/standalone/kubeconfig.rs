//! The administrator's kubeconfig: certificates embedded, readable by its owner only, written atomically.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use certs::Issued;
use serde_json::json;

use super::pki::{self, Pki};

/// Why it is not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The administrator's certificate.
    #[error(transparent)]
    Pki(#[from] pki::Error),
    /// The file.
    #[error("writing {path}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: certs::Error,
    },
}

/// Where it lies.
pub(super) fn path(data: &Path) -> PathBuf {
    data.join("kubeconfig")
}

/// Writes it, unless it says the same already.
pub(super) fn write(data: &Path, listen: SocketAddr, pki: &Pki) -> Result<(), Error> {
    let path = path(data);
    let text = text(&format!("https://{listen}"), pki.authority_pem(), &pki.admin_issued()?);
    if std::fs::read_to_string(&path).is_ok_and(|now| now == text) {
        return Ok(());
    }
    certs::write_private(&path, text.as_bytes()).map_err(|source| Error::Write { path, source })
}

/// Its text. JSON is YAML; kubectl reads both.
fn text(server: &str, authority_pem: &str, admin: &Issued) -> String {
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "kun",
        "clusters": [{"name": "kun", "cluster": {"server": server, "certificate-authority-data": encode(authority_pem)}}],
        "users": [{"name": "kun:admin", "user": {
            "client-certificate-data": encode(&admin.certificate_pem), "client-key-data": encode(&admin.key_pem)}}],
        "contexts": [{"name": "kun", "context": {"cluster": "kun", "user": "kun:admin", "namespace": "default"}}],
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn it_is_private_complete_and_not_written_twice() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let listen: SocketAddr = "127.0.0.1:8443".parse().unwrap();
        let pki = Pki::open(&dir.path().join("pki"), listen).unwrap();
        write(dir.path(), listen, &pki).unwrap();
        let file = path(dir.path());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let config = kube::config::Kubeconfig::read_from(&file).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("kun"));
        let server = config.clusters[0].cluster.as_ref().and_then(|cluster| cluster.server.clone());
        assert_eq!(server.as_deref(), Some("https://127.0.0.1:8443"));
        let before = std::fs::metadata(&file).unwrap().modified().unwrap();
        write(dir.path(), listen, &pki).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), before);
    }
}
