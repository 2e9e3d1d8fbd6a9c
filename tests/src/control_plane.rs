//! A real etcd and a real kube-apiserver, as `tests/cluster` builds them, on one loopback address; nothing outlives the
//! value.
//!
//! It must not know who asks them what. The folder holds their certificates: `server.crt`, `server.key` and `clients.crt`,
//! the authority that signed both the servers' and the clients'.

use std::{
    fs,
    net::{IpAddr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use certs::{Authority, Issued, Leaf, Usage};
use tokio::process::{Child, Command};

use crate::cluster;

/// Port of etcd: like the others below those that the kernel gives to connections.
pub const ETCD: u16 = 2379;
const ETCD_PEER: u16 = 2380;
/// Port of kube-apiserver.
pub const APISERVER: u16 = 6443;
/// Lifetime of certificates: longer than any run.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Whether etcd waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// As in a cluster: for figures.
    Durable,
    /// Nobody needs the data after a crash.
    Never,
}

/// Programs of one control plane.
#[derive(Debug)]
pub struct ControlPlane {
    children: Vec<(&'static str, Child)>,
    folder: PathBuf,
    address: IpAddr,
    /// As long as it listens, nobody else takes this address.
    _claim: TcpListener,
}

/// A port that no program of a control plane has, nor ours beside it.
const CLAIM: u16 = 8442;
/// How many addresses there are.
const ADDRESSES: u32 = 50;
/// Which of them this process takes next.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl ControlPlane {
    /// On an address that nobody has, of this process or of another one beside it, with a folder for data, logs and certificates. Nothing
    /// runs yet.
    pub fn new(folder: &Path) -> Result<Self> {
        // Neighbours begin at different places, and none comes back to one whose programs are still ending.
        let salt = std::process::id() % ADDRESSES;
        for _ in 0..ADDRESSES {
            let net = u8::try_from(200 + (salt + NEXT.fetch_add(1, Ordering::Relaxed)) % ADDRESSES)?;
            let address = IpAddr::from([127, net, 0, 2]);
            if let Ok(claim) = TcpListener::bind((address, CLAIM)) {
                return Ok(Self { children: Vec::new(), folder: folder.to_owned(), address, _claim: claim });
            }
        }
        bail!("all {ADDRESSES} addresses of control planes are in use")
    }

    /// The address everything listens on.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Starts etcd from the folder that holds the tools.
    pub fn start_etcd(&mut self, tools: &Path, sync: Sync) -> Result<()> {
        let url = |port| format!("http://{}", SocketAddr::from((self.address, port)));
        let (client, peer) = (url(ETCD), url(ETCD_PEER));
        let mut flags = vec![
            "--name=etcd".to_owned(),
            format!("--data-dir={}", self.file("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=etcd={peer}"),
            "--log-level=error".to_owned(),
        ];
        if sync == Sync::Never {
            flags.push("--unsafe-no-fsync".to_owned());
        }
        self.spawn("etcd", &tools.join("etcd"), &flags)
    }

    /// Starts kube-apiserver with further flags.
    pub fn start_apiserver(&mut self, tools: &Path, further: &[String]) -> Result<()> {
        let of = |flag: &str, name: &str| format!("--{flag}={}", self.file(name));
        let mut flags = vec![
            format!("--etcd-servers=http://{}", SocketAddr::from((self.address, ETCD))),
            format!("--bind-address={}", self.address),
            format!("--advertise-address={}", self.address),
            // A loopback address may not be an endpoint of the Service `kubernetes`.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={APISERVER}"),
            of("tls-cert-file", "server.crt"),
            of("tls-private-key-file", "server.key"),
            of("client-ca-file", "clients.crt"),
            "--service-account-issuer=https://core".to_owned(),
            of("service-account-key-file", "server.crt"),
            of("service-account-signing-key-file", "server.key"),
            "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
        ];
        flags.extend_from_slice(further);
        self.spawn("kube-apiserver", &tools.join("kube-apiserver"), &flags)
    }

    /// Starts a program; what it prints goes to a log of its name.
    pub fn spawn(&mut self, name: &'static str, program: &Path, flags: &[String]) -> Result<()> {
        let log = fs::File::create(self.path(&format!("{name}.log")))?;
        let child = Command::new(program)
            .args(flags)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        self.children.push((name, child));
        Ok(())
    }

    /// Ends a program at once.
    pub async fn kill(&mut self, name: &str) -> Result<()> {
        let place = self.children.iter().position(|(found, _)| *found == name);
        let (_, mut child) = self.children.remove(place.with_context(|| format!("no {name}"))?);
        child.kill().await.with_context(|| format!("kill {name}"))
    }

    /// Process id of a program.
    pub fn pid(&self, name: &str) -> Result<u32> {
        let child = self.children.iter().find(|(found, _)| *found == name);
        child.and_then(|(_, child)| child.id()).with_context(|| format!("no {name} runs"))
    }

    /// Whether one of them has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.children.iter_mut().any(|(_, child)| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// The last lines of a program's log.
    #[must_use]
    pub fn log_tail(&self, name: &str) -> String {
        cluster::log_tail(&self.path(&format!("{name}.log")))
    }

    /// A file in its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The same as text, for a flag.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes the server's certificate, for this address and these names, and the authority of the clients.
    pub fn write_certificates(&self, authority: &Authority, dns: &[&str]) -> Result<()> {
        let server = authority.issue(&leaf("server", &[], dns, &[self.address], Usage::SERVER))?;
        self.write_pair("server", &server)?;
        certs::write_private(&self.path("clients.crt"), authority.certificate_pem().as_bytes())?;
        Ok(())
    }

    /// Writes a certificate and its key.
    pub fn write_pair(&self, name: &str, issued: &Issued) -> Result<()> {
        certs::write_private(&self.path(&format!("{name}.crt")), issued.certificate_pem.as_bytes())?;
        certs::write_private(&self.path(&format!("{name}.key")), issued.key_pem.as_bytes())?;
        Ok(())
    }
}

/// A certificate to be signed.
#[must_use]
pub fn leaf(name: &str, groups: &[&str], dns: &[&str], ips: &[IpAddr], usage: Usage) -> Leaf {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Leaf {
        common_name: name.to_owned(),
        organizations: owned(groups),
        dns_names: owned(dns),
        ips: ips.to_vec(),
        usage,
        lifetime: DAY,
    }
}
