//! Certificates of one installation: two authorities (clients and servers of the API; agents of Redis pods) and a leaf
//! for each part. They are kept in the data directory, renewed before they expire, and followed without a restart.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apiserver::admit::call::Caller;
use certs::{Authority, Issued, Leaf, Material, Reloading, Usage};

/// How often certificates are looked at; they are renewed with a third of their life left.
const RENEW_EVERY: Duration = Duration::from_secs(3600);
/// Life of the parts' certificates: short, because nobody has to do anything to renew them.
const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// Life of the administrator's certificate, which may be copied out of the data directory.
const LIFETIME_ADMIN: Duration = Duration::from_secs(365 * 24 * 3600);

/// A certificate that cannot be made, read or kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory.
    #[error("making the directory {path}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The authority of the API.
    #[error("the certificate authority in {path}")]
    Authority {
        /// Its directory.
        path: PathBuf,
        /// Why.
        source: certs::Error,
    },
    /// A part's certificate.
    #[error("the certificate of {who}")]
    Leaf {
        /// Whose.
        who: &'static str,
        /// Why.
        source: certs::Error,
    },
}

/// Who has a certificate; its name is its file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Server,
    WebhookServer,
    Admin,
    Controller,
    Webhook,
    Node,
    /// The API server, towards webhooks.
    Apiserver,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::WebhookServer => "webhook-server",
            Self::Admin => "admin",
            Self::Controller => "controller",
            Self::Webhook => "webhook",
            Self::Node => "node",
            Self::Apiserver => "apiserver",
        }
    }

    fn leaf(self, listen: IpAddr) -> Leaf {
        match self {
            Self::Server => server("kun-apiserver", listen),
            Self::WebhookServer => server("kun-webhook", IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Self::Admin => Leaf::client("kun:admin", &["system:masters"], LIFETIME_ADMIN),
            Self::Controller => client(types::names::CONTROLLER_USER),
            Self::Webhook => client("kun:webhook"),
            Self::Node => client("kun:node"),
            Self::Apiserver => client("kun:apiserver"),
        }
    }
}

fn client(name: &str) -> Leaf {
    Leaf::client(name, &[], LIFETIME)
}

fn server(name: &str, address: IpAddr) -> Leaf {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let ips = if address == local { vec![local] } else { vec![local, address] };
    Leaf { dns_names: vec!["localhost".to_owned()], ips, usage: Usage::SERVER, ..client(name) }
}

/// The authorities, and the certificates in use. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Pki(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    issuer: Issuer,
    followed: Followed,
    callers: std::sync::Mutex<Vec<Following>>,
}

/// What issues and keeps.
#[derive(Debug)]
struct Issuer {
    directory: PathBuf,
    listen: IpAddr,
    authority: Authority,
}

/// The API server's webhook client, and the certificate it shows.
struct Following {
    caller: Arc<Caller>,
    shown: Issued,
}

impl std::fmt::Debug for Following {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Following")
    }
}

/// Parts whose TLS follows its certificate by itself.
#[derive(Debug)]
struct Followed {
    server: Reloading,
    webhook_server: Reloading,
    admin: Reloading,
    controller: Reloading,
    webhook: Reloading,
    node: Reloading,
}

impl Followed {
    fn each(&self) -> [(Who, &Reloading); 6] {
        let Self { server, webhook_server, admin, controller, webhook, node } = self;
        [
            (Who::Server, server),
            (Who::WebhookServer, webhook_server),
            (Who::Admin, admin),
            (Who::Controller, controller),
            (Who::Webhook, webhook),
            (Who::Node, node),
        ]
    }
}

impl Pki {
    /// Takes authorities and certificates from `directory`, or makes them.
    pub(super) fn open(directory: &Path, listen: SocketAddr) -> Result<Self, Error> {
        use std::os::unix::fs::DirBuilderExt as _;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|source| Error::Directory { path: directory.to_path_buf(), source })?;
        let authority = Authority::load_or_create(directory, "ca", "kun")
            .map_err(|source| Error::Authority { path: directory.to_path_buf(), source })?;
        let issuer = Issuer { directory: directory.to_path_buf(), listen: listen.ip(), authority };
        let follow =
            |who: Who| Reloading::new(issuer.material(who)?).map_err(|source| Error::Leaf { who: who.name(), source });
        let followed = Followed {
            server: follow(Who::Server)?,
            webhook_server: follow(Who::WebhookServer)?,
            admin: follow(Who::Admin)?,
            controller: follow(Who::Controller)?,
            webhook: follow(Who::Webhook)?,
            node: follow(Who::Node)?,
        };
        Ok(Self(Arc::new(Inner { issuer, followed, callers: std::sync::Mutex::default() })))
    }

    /// The authority of agents, for the controller.
    pub(super) fn agent_authority(&self) -> Result<Authority, Error> {
        let directory = &self.0.issuer.directory;
        Authority::load_or_create(directory, "agent-ca", "kun agents")
            .map_err(|source| Error::Authority { path: directory.clone(), source })
    }

    /// Whom everybody here trusts.
    pub(super) fn authority_pem(&self) -> &str {
        self.0.issuer.authority.certificate_pem()
    }

    /// The API server, serving.
    pub(super) fn server(&self) -> Reloading {
        self.0.followed.server.clone()
    }

    /// The webhook, serving.
    pub(super) fn webhook_server(&self) -> Reloading {
        self.0.followed.webhook_server.clone()
    }

    /// The administrator.
    pub(super) fn admin(&self) -> Reloading {
        self.0.followed.admin.clone()
    }

    /// The controller.
    pub(super) fn controller(&self) -> Reloading {
        self.0.followed.controller.clone()
    }

    /// The webhook, as a client.
    pub(super) fn webhook(&self) -> Reloading {
        self.0.followed.webhook.clone()
    }

    /// The node.
    pub(super) fn node(&self) -> Reloading {
        self.0.followed.node.clone()
    }

    /// The administrator's certificate itself, for the kubeconfig.
    pub(super) fn admin_issued(&self) -> Result<Issued, Error> {
        self.0.issuer.issue(Who::Admin)
    }

    /// The certificate the API server shows to webhooks.
    pub(super) fn apiserver_issued(&self) -> Result<Issued, Error> {
        self.0.issuer.issue(Who::Apiserver)
    }

    /// From now on the API server's webhook client is given each renewed certificate.
    pub(super) fn follow_with(&self, caller: Arc<Caller>, shown: Issued) {
        let mut callers = self.0.callers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        callers.push(Following { caller, shown });
    }

    /// Looks at all certificates now and then, for ever. A renewal that fails leaves the old one in use and is tried again.
    pub(super) async fn renew_for_ever(&self) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            if let Err(error) = self.renew() {
                tracing::warn!("renewing certificates: {}", crate::log::chain(&error));
            }
        }
    }

    /// Looks at all certificates once.
    fn renew(&self) -> Result<(), Error> {
        for (who, reloading) in self.0.followed.each() {
            reloading.swap(self.0.issuer.material(who)?).map_err(|source| Error::Leaf { who: who.name(), source })?;
        }
        let issued = self.apiserver_issued()?;
        let mut callers = self.0.callers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for following in callers.iter_mut().filter(|following| following.shown != issued) {
            following.caller.renew(issued.clone());
            following.shown = issued.clone();
        }
        Ok(())
    }
}

impl Issuer {
    fn issue(&self, who: Who) -> Result<Issued, Error> {
        let leaf = who.leaf(self.listen);
        self.authority
            .load_or_issue(&self.directory, who.name(), &leaf)
            .map_err(|source| Error::Leaf { who: who.name(), source })
    }

    fn material(&self, who: Who) -> Result<Material, Error> {
        Ok(Material { identity: Some(self.issue(who)?), authorities_pem: self.authority.certificate_pem().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn certificates_are_kept_from_start_to_start_and_each_part_has_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let listen: SocketAddr = "127.0.0.1:8443".parse().unwrap();
        let issue = || -> Vec<Issued> {
            let pki = Pki::open(&dir.path().join("pki"), listen).unwrap();
            let followed = pki.0.followed.each().map(|(who, _)| pki.0.issuer.issue(who).unwrap());
            followed.into_iter().chain([pki.apiserver_issued().unwrap()]).collect()
        };
        let (first, second) = (issue(), issue());
        assert_eq!(first, second);
        let distinct: std::collections::BTreeSet<&str> = first.iter().map(|issued| issued.key_pem.as_str()).collect();
        assert_eq!(distinct.len(), 7);
    }

    #[test]
    fn agents_have_an_authority_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path(), "127.0.0.1:1".parse().unwrap()).unwrap();
        assert_ne!(pki.agent_authority().unwrap().certificate_pem(), pki.authority_pem());
        pki.renew().unwrap();
    }
}
