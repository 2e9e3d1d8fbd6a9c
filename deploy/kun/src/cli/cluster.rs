//! Flags of the parts that run in a cluster. Those that Kubernetes' own servers have are called as there.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use apiserver::filter::authn::trust::AnyName;

use super::{Error, USAGE, audit, directory, fail, run_with, store};
use crate::cluster;
use crate::log::Form;

/// Shortest time that new and old authorities are believed side by side: a bundle is a write away.
const OVERLAP_LEAST: Duration = Duration::from_secs(1);
/// Shortest life of a certificate: each is renewed after two thirds, which must not become a loop.
const LIFETIME_LEAST: Duration = Duration::from_secs(30);

/// As whom our API server asks webhooks.
const APISERVER: &str = "kun:apiserver";

/// How every part says what it does.
#[derive(Debug, clap::Args)]
struct LogFlags {
    /// Log lines for a person or for a machine.
    #[arg(long, value_enum, default_value = "json")]
    log: Form,
    /// Say more; twice for everything.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// How every part reaches the kube-apiserver.
#[derive(Debug, clap::Args)]
struct ClientFlags {
    /// How to reach the kube-apiserver; absent: as a pod does.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Where a part serves.
#[derive(Debug, clap::Args)]
struct ServingFlags {
    /// Address to listen on.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Port to listen on.
    #[arg(long, value_name = "PORT", default_value = "8443")]
    secure_port: u16,
    /// Certificate of the server (PEM); followed when it changes.
    #[arg(long, value_name = "FILE")]
    tls_cert_file: PathBuf,
    /// Its key (PEM).
    #[arg(long, value_name = "FILE")]
    tls_private_key_file: PathBuf,
}

/// Who takes part in an election, and where its probes ask.
#[derive(Debug, clap::Args)]
struct MemberFlags {
    /// Namespace of the lease, the authorities and our Services.
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    namespace: String,
    /// Our name in the lease: another one in each process.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    identity: String,
    /// Where probes and scrapers are answered, in plain HTTP.
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8080")]
    observe: SocketAddr,
}

/// Flags of `kun apiserver`.
#[derive(Debug, clap::Args)]
pub(super) struct ServerFlags {
    /// Directory for the objects and the audit trail. Created if absent.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[command(flatten)]
    serving: ServingFlags,
    #[command(flatten)]
    client: ClientFlags,
    /// Webhook, by the name in its URL, that is shown the server's certificate as a client's. May be given more than once.
    #[arg(long, value_name = "NAME")]
    identify_to: Vec<String>,
    /// Let any certificate of the proxies' authority say who asks, although the cluster names no proxies. Dangerous: whoever has one
    /// could be anybody.
    #[arg(long)]
    requestheader_allow_any_name: bool,
    #[command(flatten)]
    store: store::StoreFlags,
    #[command(flatten)]
    audit: audit::AuditFlags,
    #[command(flatten)]
    log: LogFlags,
}

/// Flags of `kun webhook`.
#[derive(Debug, clap::Args)]
pub(super) struct WebhookFlags {
    #[command(flatten)]
    serving: ServingFlags,
    /// Authority (PEM) that signs the certificates of those who may ask; followed when it changes. Without it whoever reaches the port
    /// may ask, also in somebody else's name: what is answered tells who may read which Secret.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Common name on the certificate of who may ask. May be given more than once.
    #[arg(long, value_name = "NAME", default_value = APISERVER)]
    caller: Vec<String>,
    #[command(flatten)]
    client: ClientFlags,
    #[command(flatten)]
    log: LogFlags,
}

/// Flags of `kun controller`.
#[derive(Debug, clap::Args)]
pub(super) struct ControllerFlags {
    #[command(flatten)]
    member: MemberFlags,
    /// Image that holds kun, for the init container of Redis pods.
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Secret that holds the authority of the agents.
    #[arg(long, value_name = "SECRET", default_value = "kun-agents-authority")]
    agents_authority: String,
    #[command(flatten)]
    client: ClientFlags,
    #[command(flatten)]
    log: LogFlags,
}

/// Flags of `kun certs`.
#[derive(Debug, clap::Args)]
pub(super) struct CertsFlags {
    #[command(flatten)]
    member: MemberFlags,
    /// Secret of the authority that signs serving certificates.
    #[arg(long, value_name = "SECRET", default_value = "kun-authority")]
    authority: String,
    /// Secret of the authority of the agents.
    #[arg(long, value_name = "SECRET", default_value = "kun-agents-authority")]
    agents_authority: String,
    /// Secret in which somebody else (cert-manager) makes the authority of the agents: each new one is believed for the overlap
    /// before it signs, and the former one for as long after. Without it we make it.
    #[arg(long, value_name = "SECRET")]
    agents_from: Option<String>,
    /// Secret of a serving certificate, and the Service it is for. May be given more than once.
    #[arg(long, value_name = "SECRET=SERVICE")]
    serving: Vec<String>,
    /// Secret of a serving certificate with which its owner also asks others, and the name that it has there. May be given more than
    /// once.
    #[arg(long, value_name = "SECRET=NAME")]
    client_name: Vec<String>,
    /// APIService that is told whom to believe. May be given more than once.
    #[arg(long, value_name = "NAME")]
    api_service: Vec<String>,
    /// Mutating and validating webhook configuration that are told whom to believe. May be given more than once.
    #[arg(long, value_name = "NAME")]
    webhook_configuration: Vec<String>,
    /// How long new and old authorities are believed side by side.
    #[arg(long, value_name = "TIME", default_value = "24h")]
    overlap: String,
    /// How long a serving certificate lives; it is renewed after two thirds of that.
    #[arg(long, value_name = "TIME", default_value = "2160h")]
    lifetime: String,
    #[command(flatten)]
    client: ClientFlags,
    #[command(flatten)]
    log: LogFlags,
}

/// `kun apiserver`.
pub(super) fn run_apiserver(flags: ServerFlags) -> ExitCode {
    let (form, verbosity) = (flags.log.log, flags.log.verbose);
    match check_server(flags) {
        Ok(options) => {
            run_with(form, verbosity, Some(&options.data.join("audit.log")), cluster::apiserver::run(options))
        }
        Err(error) => fail(USAGE, &error.to_string()),
    }
}

/// `kun webhook`.
pub(super) fn run_webhook(flags: WebhookFlags) -> ExitCode {
    let (form, verbosity) = (flags.log.log, flags.log.verbose);
    let options = |listen| cluster::webhook::Options {
        listen,
        certificate: flags.serving.certificate(),
        client_ca: flags.client_ca_file,
        callers: flags.caller,
        kubeconfig: flags.client.kubeconfig,
    };
    match flags.serving.listen() {
        Ok(listen) => run_with(form, verbosity, None, cluster::webhook::run(options(listen))),
        Err(error) => fail(USAGE, &error.to_string()),
    }
}

/// `kun controller`.
pub(super) fn run_controller(flags: ControllerFlags) -> ExitCode {
    let (form, verbosity) = (flags.log.log, flags.log.verbose);
    match check_controller(flags) {
        Ok(options) => run_with(form, verbosity, None, cluster::controller::run(options)),
        Err(error) => fail(USAGE, &error.to_string()),
    }
}

/// `kun certs`.
pub(super) fn run_certs(flags: CertsFlags) -> ExitCode {
    let (form, verbosity) = (flags.log.log, flags.log.verbose);
    match check_certs(flags) {
        Ok(options) => run_with(form, verbosity, None, cluster::certs::run(options)),
        Err(error) => fail(USAGE, &error.to_string()),
    }
}

impl ServingFlags {
    fn listen(&self) -> Result<SocketAddr, Error> {
        match self.secure_port {
            0 => Err(Error::NoSecurePort),
            port => Ok(SocketAddr::new(self.bind_address, port)),
        }
    }

    fn certificate(&self) -> (PathBuf, PathBuf) {
        (self.tls_cert_file.clone(), self.tls_private_key_file.clone())
    }
}

impl MemberFlags {
    fn observe(&self) -> Result<SocketAddr, Error> {
        if self.observe.port() == 0 { Err(Error::NoObservePort(self.observe)) } else { Ok(self.observe) }
    }
}

fn check_server(flags: ServerFlags) -> Result<cluster::apiserver::Options, Error> {
    let listen = flags.serving.listen()?;
    let any_name = if flags.requestheader_allow_any_name { AnyName::Allowed } else { AnyName::Refused };
    let store = store::kept(flags.store, true)?;
    Ok(cluster::apiserver::Options {
        data: directory(&flags.data)?,
        store,
        audit: audit::recorded(flags.audit)?,
        listen,
        certificate: flags.serving.certificate(),
        identify_to: flags.identify_to,
        kubeconfig: flags.client.kubeconfig,
        any_name,
    })
}

fn check_controller(flags: ControllerFlags) -> Result<cluster::controller::Options, Error> {
    Ok(cluster::controller::Options {
        observe: flags.member.observe()?,
        kubeconfig: flags.client.kubeconfig,
        namespace: flags.member.namespace,
        identity: flags.member.identity,
        kun_image: flags.image,
        agents_authority: flags.agents_authority,
    })
}

fn check_certs(flags: CertsFlags) -> Result<cluster::certs::Options, Error> {
    let serving = pairs(flags.serving, Error::Serving)?;
    let client_names = pairs(flags.client_name, Error::ClientName)?;
    if let Some(secret) = client_names.keys().find(|secret| !serving.contains_key(*secret)) {
        return Err(Error::ClientName(secret.clone()));
    }
    let overlap = time("overlap", flags.overlap, OVERLAP_LEAST)?;
    let lifetime = time("lifetime", flags.lifetime, LIFETIME_LEAST)?;
    Ok(cluster::certs::Options {
        observe: flags.member.observe()?,
        kubeconfig: flags.client.kubeconfig,
        namespace: flags.member.namespace,
        identity: flags.member.identity,
        authority: flags.authority,
        agents_authority: flags.agents_authority,
        agents_from: flags.agents_from,
        serving,
        client_names,
        api_services: flags.api_service,
        webhooks: flags.webhook_configuration,
        overlap,
        lifetime,
    })
}

/// What is given as SECRET=NAME, by Secret.
fn pairs(given: Vec<String>, refuse: fn(String) -> Error) -> Result<BTreeMap<String, String>, Error> {
    let pair = |given: String| match given.split_once('=') {
        Some((secret, name)) if !secret.is_empty() && !name.is_empty() => Ok((secret.to_owned(), name.to_owned())),
        Some(_) | None => Err(refuse(given)),
    };
    given.into_iter().map(pair).collect()
}

fn time(flag: &'static str, given: String, least: Duration) -> Result<Duration, Error> {
    let parsed: Option<jiff::SignedDuration> = given.parse().ok();
    let time = parsed.and_then(|time| Duration::try_from(time).ok()).filter(|time| *time >= least);
    time.ok_or(Error::Time { flag, given, least })
}
