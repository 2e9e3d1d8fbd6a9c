//! `kun certs`: makes the authorities and serving certificates of a cluster, and turns them before they end.
//!
//! The order is what this file is for: whom to believe is published (the `caBundle` of the APIService and of the webhooks)
//! before anything is signed by somebody new, and nothing is restarted: kubelets bring new files into the pods, and the
//! parts follow them. Where somebody else makes all of it (cert-manager), one thing is left to us: of the agents' authority
//! he keeps only the last one, and the one before is needed for a while. One process of several acts, by a lease. It must not know what the certificates are used for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use certs::{Authority, Issued, Leaf, Ring, Turn, Usage};
use controller::lease::{self, Guard};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;
use types::patience;

use super::observe::{self, Observed, observe};
use super::{client, ring};
use crate::standalone::Signals;

mod publish;
mod wake;

use publish::Bundled;
use wake::Wake;

/// Longest rest. Changes wake us; this is for those that were missed, and for leaves that run out.
const REST: Duration = Duration::from_secs(600);
/// How often it is asked whether we lead.
const LEADING: Duration = Duration::from_millis(200);
/// Annotation with which somebody asks for another authority: a time of RFC 3339, once per turn.
const TURN: &str = "redis.kun.io/turn";
/// Type of the Secrets.
const TLS: &str = "kubernetes.io/tls";

/// What this needs in the namespace of KUN beyond what the controller has everywhere, as rules of a Role: a Secret is written as a
/// whole, because what it lacks is to be gone.
#[must_use]
pub fn rules() -> Vec<serde_json::Value> {
    vec![serde_json::json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["update"]})]
}

/// What to run, already checked.
#[derive(Clone, Debug)]
pub struct Options {
    /// How to reach the kube-apiserver; absent: as a pod does.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the lease, the Secrets and the Services.
    pub namespace: String,
    /// Our name in the lease.
    pub identity: String,
    /// Secret of the authority that signs serving certificates.
    pub authority: String,
    /// Secret of the authority of the agents.
    pub agents_authority: String,
    /// Secret in which somebody else makes that authority; absent: we make it.
    pub agents_from: Option<String>,
    /// Secrets of serving certificates, and the Service each of them is for.
    pub serving: BTreeMap<String, String>,
    /// Those of these Secrets with which their owner also asks others, and the name that it has there.
    pub client_names: BTreeMap<String, String>,
    /// APIServices to be told whom to believe.
    pub api_services: Vec<String>,
    /// Webhook configurations, of both kinds, to be told whom to believe.
    pub webhooks: Vec<String>,
    /// How long new and old are believed side by side.
    pub overlap: Duration,
    /// How long a serving certificate lives.
    pub lifetime: Duration,
    /// Where probes and scrapers are answered.
    pub observe: SocketAddr,
}

/// Why it could not start, or a round came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Signals.
    #[error("listening to signals")]
    Signals(#[source] std::io::Error),
    /// The client of the kube-apiserver.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// Probes.
    #[error(transparent)]
    Observe(#[from] observe::Error),
    /// An object could not be read.
    #[error("reading {kind} {name}")]
    Read {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why.
        source: kube::Error,
    },
    /// An object could not be written.
    #[error("writing {kind} {name}")]
    Write {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why.
        source: kube::Error,
    },
    /// It is not there, and is not ours to make.
    #[error("{kind} {name} is not there: whoever installs KUN creates it")]
    Absent {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The authority that somebody else makes is not there.
    #[error("secret {0} holds no authority yet: whoever makes it is waited for")]
    NotGiven(String),
    /// A certificate.
    #[error("making the certificate of {0}")]
    Certificate(String, #[source] certs::Error),
}

/// What probes and scrapers are told.
#[derive(Default)]
struct Told {
    /// Why the last round came to nothing; empty: it did not.
    fault: Mutex<String>,
    rounds: AtomicU64,
    faults: AtomicU64,
    turns: AtomicU64,
}

impl Observed for Told {
    /// A fault is the cluster's to mend, not a reason to be restarted: it is a line in the log and a metric.
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn metrics(&self) -> String {
        let faulty = u8::from(!self.fault.lock().unwrap_or_else(PoisonError::into_inner).is_empty());
        let [rounds, faults, turns] =
            [&self.rounds, &self.faults, &self.turns].map(|count| count.load(Ordering::Relaxed));
        format!(
            "# HELP kun_certs_rounds Looks at all certificates\n# TYPE kun_certs_rounds counter\nkun_certs_rounds_total {rounds}\n\
             # HELP kun_certs_faults Looks that came to nothing\n# TYPE kun_certs_faults counter\nkun_certs_faults_total {faults}\n\
             # HELP kun_certs_turns Authorities announced, promoted or retired\n# TYPE kun_certs_turns counter\nkun_certs_turns_total {turns}\n\
             # HELP kun_certs_faulty 1 if the last look came to nothing\n# TYPE kun_certs_faulty gauge\nkun_certs_faulty {faulty}\n# EOF\n"
        )
    }
}

/// Keeps certificates until a signal.
pub async fn run(options: Options) -> Result<ExitCode, Error> {
    let mut signals = Signals::listen().map_err(Error::Signals)?;
    let client = client::client(options.kubeconfig.as_deref()).await?;
    let (stop, told) = (CancellationToken::new(), Arc::new(Told::default()));
    observe(options.observe, Arc::clone(&told), stop.clone()).await?;
    let (guard, name) =
        (Guard::new(), lease::Name { namespace: options.namespace.clone(), name: "kun-certs".to_owned() });
    let election =
        tokio::spawn(lease::hold(client.clone(), name, options.identity.clone(), guard.clone(), stop.clone()));
    let keeper = Keeper { client, options, guard, told };
    tokio::select! {
        () = keeper.keep() => {}
        () = signals.first() => {}
    }
    stop.cancel();
    if let Err(error) = election.await {
        tracing::error!(%error, "the election ended badly");
    }
    Ok(ExitCode::SUCCESS)
}

struct Keeper {
    client: Client,
    options: Options,
    guard: Guard,
    told: Arc<Told>,
}

impl Keeper {
    /// Rounds, for ever: when something changed, when something is due, and again soon after a fault.
    async fn keep(&self) {
        let wake = Wake::follow(&self.client, &self.options);
        let mut faults = 0_u32;
        loop {
            if !self.guard.is_valid() {
                tokio::time::sleep(LEADING).await;
                continue;
            }
            wake.clear();
            let rest = match self.round(Timestamp::now()).await {
                Ok(rest) => {
                    self.note(String::new());
                    faults = 0;
                    rest.min(REST)
                }
                Err(error) => {
                    let chain = crate::log::chain(&error);
                    tracing::warn!(error = chain, "certificates could not be looked after; trying again");
                    self.note(chain);
                    faults = faults.saturating_add(1);
                    patience::after(faults)
                }
            };
            tokio::select! {
                () = wake.woken() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    fn note(&self, fault: String) {
        self.told.rounds.fetch_add(1, Ordering::Relaxed);
        self.told.faults.fetch_add(u64::from(!fault.is_empty()), Ordering::Relaxed);
        *self.told.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// One look at everything. Gives how long nothing will be due.
    async fn round(&self, now: Timestamp) -> Result<Duration, Error> {
        let serving = if self.options.serving.is_empty() { REST } else { self.serve_all(now).await? };
        let given = match &self.options.agents_from {
            Some(secret) => Some(self.given(secret).await?),
            None => None,
        };
        let (_, agents) = self.turn(&self.options.agents_authority, Audience::Agents, given, now).await?;
        Ok(serving.min(agents))
    }

    async fn serve_all(&self, now: Timestamp) -> Result<Duration, Error> {
        let (ring, rest) = self.turn(&self.options.authority, Audience::Core, None, now).await?;
        for (secret, service) in &self.options.serving {
            self.serve(&ring, secret, service, now).await?;
        }
        Ok(rest)
    }

    /// The authority that somebody else has made.
    async fn given(&self, secret: &str) -> Result<Authority, Error> {
        let found = self.read(secret).await?.ok_or_else(|| Error::NotGiven(secret.to_owned()))?;
        let ring =
            Ring::decode(&ring::texts(&found)).map_err(|source| Error::Certificate(secret.to_owned(), source))?;
        ring.map(Ring::into_signer).ok_or_else(|| Error::NotGiven(secret.to_owned()))
    }

    /// The ring in a Secret: made if there is none, published, and turned if that is due. Published again before
    /// anybody signs: what is signed next is believed by everybody who asks. Where its authority is `given`, none is made.
    async fn turn(
        &self,
        secret: &str,
        audience: Audience,
        given: Option<Authority>,
        now: Timestamp,
    ) -> Result<(Ring, Duration), Error> {
        let failed = |source| Error::Certificate(secret.to_owned(), source);
        let kept = self.read(secret).await?;
        let found = kept.as_ref().map(|kept| Ring::decode(&ring::texts(kept))).transpose().map_err(failed)?.flatten();
        let asked = kept.as_ref().and_then(|kept| kept.metadata.annotations.as_ref()?.get(TURN)?.parse().ok());
        let is_given = given.is_some();
        let (mut ring, is_news) = match (found, given) {
            (Some(ring), None) => (ring, false),
            (Some(ring), Some(given)) => ring.adopt(given, now),
            (None, Some(given)) => (Ring::of(given), true),
            (None, None) => (Ring::create_at(audience.authority(), now).map_err(failed)?, true),
        };
        if is_news {
            self.write(secret, kept, ring.encode()).await?;
            tracing::info!(secret, is_given, "there is a new authority");
        }
        self.publish(audience, &ring).await?;
        let due = ring.due(self.options.overlap, asked, now).map_err(failed)?;
        let rest = match due {
            Turn::Rest(rest) => return Ok((ring, rest)),
            // Who makes it makes its successor, too.
            Turn::Announce if is_given => return Ok((ring, REST)),
            Turn::Announce | Turn::Promote | Turn::Retire => self.options.overlap,
        };
        ring = ring.turn(due, now).map_err(failed)?;
        let kept = self.read(secret).await?;
        self.write(secret, kept, ring.encode()).await?;
        self.told.turns.fetch_add(1, Ordering::Relaxed);
        tracing::info!(secret, ?due, "an authority turned");
        self.publish(audience, &ring).await?;
        Ok((ring, rest))
    }

    /// Who dials us is told whom to believe. Agents are by the controller, which writes it beside their certificates.
    async fn publish(&self, audience: Audience, ring: &Ring) -> Result<(), Error> {
        match audience {
            Audience::Core => {}
            Audience::Agents => return Ok(()),
        }
        let bundle = ByteString(ring.bundle_pem().into_bytes());
        for name in &self.options.api_services {
            self.tell::<APIService>(name, &bundle).await?;
        }
        for name in &self.options.webhooks {
            self.tell::<MutatingWebhookConfiguration>(name, &bundle).await?;
            self.tell::<ValidatingWebhookConfiguration>(name, &bundle).await?;
        }
        Ok(())
    }

    async fn tell<K: Bundled>(&self, name: &str, bundle: &ByteString) -> Result<(), Error> {
        let (api, kind) = (Api::<K>::all(self.client.clone()), K::KIND);
        let read = api.get_opt(name).await;
        let found = read.map_err(|source| Error::Read { kind, name: name.to_owned(), source })?;
        let mut object = found.ok_or_else(|| Error::Absent { kind, name: name.to_owned() })?;
        if object.tell(bundle) {
            let written = api.replace(name, &PostParams::default(), &object).await;
            written.map_err(|source| Error::Write { kind, name: name.to_owned(), source })?;
            tracing::info!(kind, name, "whom to believe was published");
        }
        Ok(())
    }

    /// The serving certificate of a Service: as it is, or a new one if it ends, is wrong, or was signed by somebody who
    /// signs no more.
    async fn serve(&self, ring: &Ring, secret: &str, service: &str, now: Timestamp) -> Result<(), Error> {
        let namespace = &self.options.namespace;
        let leaf = leaf(service, namespace, self.options.client_names.get(secret), self.options.lifetime);
        let kept = self.read(secret).await?;
        let before = kept.as_ref().map(ring::texts).unwrap_or_default();
        let text = |name: &str| before.get(name).cloned();
        let pair = text(certs::ring::key::CERTIFICATE).zip(text(certs::ring::key::PRIVATE_KEY));
        let pair = pair.map(|(certificate_pem, key_pem)| Issued { certificate_pem, key_pem });
        let issued = ring.keep_or_issue_at(pair, &leaf, now);
        let issued = issued.map_err(|source| Error::Certificate(leaf.common_name.clone(), source))?;
        let after = BTreeMap::from([
            (certs::ring::key::CERTIFICATE.to_owned(), issued.certificate_pem),
            (certs::ring::key::PRIVATE_KEY.to_owned(), issued.key_pem),
            (certs::ring::key::BUNDLE.to_owned(), ring.bundle_pem()),
        ]);
        if after != before {
            self.write(secret, kept, after).await?;
            tracing::info!(secret, service, "a serving certificate was written");
        }
        Ok(())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.options.namespace)
    }

    async fn read(&self, name: &str) -> Result<Option<Secret>, Error> {
        let read = self.secrets().get_opt(name).await;
        read.map_err(|source| Error::Read { kind: "secret", name: name.to_owned(), source })
    }

    /// Writes over what was read, or makes it; if somebody else wrote meanwhile, the round fails and begins anew.
    async fn write(&self, name: &str, before: Option<Secret>, data: BTreeMap<String, String>) -> Result<(), Error> {
        let data = data.into_iter().map(|(name, text)| (name, ByteString(text.into_bytes()))).collect();
        let api = self.secrets();
        let written = match before {
            Some(before) => api.replace(name, &PostParams::default(), &Secret { data: Some(data), ..before }).await,
            None => {
                let labels = BTreeMap::from([("app.kubernetes.io/part-of".to_owned(), "kun".to_owned())]);
                let metadata =
                    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
                let secret = Secret { metadata, type_: Some(TLS.to_owned()), data: Some(data), ..Secret::default() };
                api.create(&PostParams::default(), &secret).await
            }
        };
        written.map(drop).map_err(|source| Error::Write { kind: "secret", name: name.to_owned(), source })
    }
}

/// The certificate of a Service; where its owner also asks others, it says who that is.
fn leaf(service: &str, namespace: &str, client: Option<&String>, lifetime: Duration) -> Leaf {
    let host = format!("{service}.{namespace}.svc");
    Leaf {
        common_name: client.unwrap_or(&host).clone(),
        organizations: Vec::new(),
        dns_names: ["", ".cluster.local"].map(|end| format!("{host}{end}")).into(),
        ips: Vec::new(),
        usage: if client.is_some() { Usage::BOTH } else { Usage::SERVER },
        lifetime,
    }
}

/// Who believes an authority.
#[derive(Clone, Copy)]
enum Audience {
    /// The kube-apiserver, which dials our Services.
    Core,
    /// The agents and the controller, each other.
    Agents,
}

impl Audience {
    /// Common name of the authority.
    fn authority(self) -> &'static str {
        match self {
            Self::Core => "kun",
            Self::Agents => "kun-agents",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_servers_certificate_also_says_who_asks_and_no_other_does() {
        let name = "kun:apiserver".to_owned();
        let (server, other) = (leaf("a", "n", Some(&name), REST), leaf("b", "n", None, REST));
        assert_eq!((server.common_name, server.usage), (name, Usage::BOTH));
        assert_eq!(server.dns_names, ["a.n.svc", "a.n.svc.cluster.local"]);
        assert_eq!((other.common_name.as_str(), other.usage), ("b.n.svc", Usage::SERVER));
        assert_eq!(other.dns_names, ["b.n.svc", "b.n.svc.cluster.local"]);
    }
}
