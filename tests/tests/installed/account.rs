//! What KUN asks of a cluster, by the cluster's own audit log; and whom it believes.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use certs::{Authority, Leaf};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tests::{
    installed::{Installed, SYSTEM},
    story,
};

use crate::{
    run::Told,
    scenario::{api, orders, pass, say, under_writes},
};

/// How long nothing is to happen.
const REST: Duration = Duration::from_secs(20);
/// How long a kube-apiserver may take to see that a file of its own has changed, or who believes it that a ConfigMap has: the kernel and the
/// watch tell them, nobody tells us.
fn seen() -> Duration {
    Duration::from_secs(15) * hung::stretch().min(STILL)
}
/// Who follows the ConfigMap hears of it at once.
const MOMENT: Duration = Duration::from_secs(2);
/// A machine that stands still does so for seconds at a time: so many times the usual are enough, and more would only be waited for.
const STILL: u32 = 3;

/// Rights that these scenarios give no occasion to use, each with the reason why KUN has it.
const FOR_OTHER_DAYS: &[(&str, &str)] = &[
    (
        "apiserver get namespaces ",
        "an object in a namespace that was made this moment, which the watch has not told of yet",
    ),
    (
        "apiserver watch mutatingadmissionpolicies admissionregistration.k8s.io",
        "Kubernetes serves them from 1.34 on, if told to",
    ),
    ("apiserver watch mutatingadmissionpolicybindings admissionregistration.k8s.io", "the same"),
];

/// What was asked of the kube-apiserver, as far as its audit log tells.
pub(crate) struct Asked {
    pub(crate) user: String,
    pub(crate) verb: String,
    group: String,
    /// With its subresource.
    pub(crate) resource: String,
    pub(crate) code: u64,
}

/// What KUN's service accounts have asked since a place in the log.
pub(crate) fn asked(installed: &Installed, since: u64) -> Result<Vec<Asked>> {
    let path = installed.kubernetes.state().context("the cluster is ours")?.join("log/audit.log");
    let mut log = fs::File::open(path)?;
    log.seek(SeekFrom::Start(since))?;
    let mut found = Vec::new();
    for line in BufReader::new(log).lines() {
        // The last line may be half written.
        let Ok(event) = serde_json::from_str::<Value>(&line?) else { continue };
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let Some(user) =
            text("/user/username").strip_prefix("system:serviceaccount:kun-system:kun-").map(str::to_owned)
        else {
            continue;
        };
        let resource = [text("/objectRef/resource"), text("/objectRef/subresource")];
        found.push(Asked {
            user,
            verb: text("/verb"),
            group: text("/objectRef/apiGroup"),
            resource: resource.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join("/"),
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        });
    }
    Ok(found)
}

/// How often something was asked for and refused since a place in the log.
pub(crate) fn in_vain(installed: &Installed, since: u64, verb: &str, resource: &str) -> Result<usize> {
    let refused = asked(installed, since)?.into_iter().filter(|asked| asked.code == 403);
    Ok(refused.filter(|asked| asked.verb == verb && asked.resource == resource).count())
}

/// How long that log is now.
pub(crate) fn length(installed: &Installed) -> Result<u64> {
    let path = installed.kubernetes.state().context("the cluster is ours")?.join("log/audit.log");
    Ok(fs::metadata(path)?.len())
}

/// Comes to rest after what was done before, and then rests: nobody else is at work on this cluster.
pub(crate) async fn at_rest_nothing_is_asked_but_about_leases(installed: &Installed) -> Result<()> {
    orders(installed).await?;
    let begin = Instant::now();
    loop {
        let since = length(installed)?;
        pass(REST).await;
        let asked = asked(installed, since)?;
        let leases = asked.iter().filter(|asked| asked.resource == "leases").count();
        let others = of_work(&asked);
        ensure!(leases > 0, "the log tells nothing");
        if others.is_empty() {
            say(&format!("{} requests in {REST:?} at rest, {leases} of them about leases", asked.len()));
            return Ok(());
        }
        say(&format!("not yet at rest: {}", others.join(", ")));
        ensure!(begin.elapsed() < hung::change(), "it does not come to rest: {others:#?}");
    }
}

/// What was asked for to get something done.
fn of_work(asked: &[Asked]) -> Vec<String> {
    // A watch is begun anew after some minutes, and whoever reads our API is asked about: neither is work of ours.
    let is_none = |asked: &&Asked| {
        !["leases", "subjectaccessreviews", "tokenreviews"].contains(&asked.resource.as_str()) && asked.verb != "watch"
    };
    let told = |asked: &Asked| format!("{} {} {}", asked.user, asked.verb, asked.resource);
    asked.iter().filter(is_none).map(told).collect()
}

/// What KUN has asked for on one cluster, as `account verb resource group`, and whether it got it.
pub(crate) fn told(installed: &Installed) -> Result<Told> {
    let shown =
        |asked: Asked| (format!("{} {} {} {}", asked.user, asked.verb, asked.resource, asked.group), asked.code != 403);
    Ok(asked(installed, 0)?.into_iter().map(shown).collect())
}

/// Every right that the chart asks for was used by one of the scenarios, or has a reason.
pub(crate) fn what_is_allowed_is_what_is_used(told: &Told) -> Result<()> {
    let of = |allowed: bool| -> BTreeSet<String> {
        told.iter().filter(|(_, was)| *was == allowed).map(|(what, _)| what.clone()).collect()
    };
    let (refused, used) = (of(false), of(true));
    let granted = granted()?;
    let idle: Vec<&String> = granted.difference(&used).collect();
    say(&format!("{} rights granted, {} not used", granted.len(), idle.len()));
    let explained: BTreeSet<&str> = FOR_OTHER_DAYS.iter().map(|(right, _)| *right).collect();
    let unexplained: Vec<_> = idle.iter().filter(|right| !explained.contains(right.as_str())).collect();
    ensure!(unexplained.is_empty(), "granted and never used: {unexplained:#?}");
    // What is granted is refused all the same in a namespace that goes, and while KUN is being taken away.
    let lacking: Vec<_> = refused.difference(&used).collect();
    ensure!(lacking.is_empty(), "asked for and never granted: {lacking:#?}");
    Ok(())
}

/// What the chart gives, as `account verb resource group`.
fn granted() -> Result<BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart/rbac");
    let mut granted = BTreeSet::new();
    for account in ["apiserver", "controller", "webhook"] {
        let text = fs::read_to_string(folder.join(account).with_extension("json"))?;
        let rules: Value = serde_json::from_str(&text)?;
        let rules = ["everywhere", "own"].into_iter().flat_map(|part| rules[part].as_array().into_iter().flatten());
        for rule in rules {
            let texts = |field: &str| -> Vec<String> {
                rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
            };
            for (group, resource, verb) in product(&texts("apiGroups"), &texts("resources"), &texts("verbs")) {
                granted.insert(format!("{account} {verb} {resource} {group}"));
            }
        }
    }
    ensure!(!granted.is_empty(), "no rights");
    Ok(granted)
}

fn product<'a>(
    one: &'a [String],
    two: &'a [String],
    three: &'a [String],
) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    one.iter().flat_map(move |one| {
        two.iter().flat_map(move |two| three.iter().map(move |three| (one.as_str(), two.as_str(), three.as_str())))
    })
}

/// Another authority for serving, one for the agents and one for Kubernetes' front proxy take the place of the present ones;
/// meanwhile everybody reads and writes. A request is tried once: none fails, unless the machine stood still.
pub(crate) async fn authorities_are_exchanged_without_a_failed_request(installed: &Installed) -> Result<()> {
    under_writes(installed, async |writer| {
        let first = authority(installed, "kun-authority").await?;
        let turn = format!("redis.kun.io/turn={:.0}", Timestamp::now());
        let secrets = ["annotate", "secret", "kun-authority", "kun-agents-authority", "-n", SYSTEM, &turn];
        installed.kubectl.run(&secrets).await?;
        let begin = Instant::now();
        let requests = tokio::select! {
            failed = ask_on(installed) => return Err(failed.unwrap_err()),
            done = async {
                front_proxy(installed).await?;
                believed_no_more(installed, "kun-authority", &first).await?;
                // What is believed no more must not have been needed.
                pass(Duration::from_secs(5)).await;
                Ok::<_, anyhow::Error>(())
            } => done,
        };
        requests?;
        writer.progress(100, hung::change()).await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        say(&format!("three authorities exchanged in {:.0} s, no request failed", begin.elapsed().as_secs_f64()));
        Ok(())
    })
    .await
}

/// Writes and reads through the kube-apiserver until one fails that nothing was too slow for.
async fn ask_on(installed: &Installed) -> Result<std::convert::Infallible> {
    let (api, slow) = (api(installed).await?, Slow::since_now(installed)?);
    let mut away: Option<Instant> = None;
    for number in 0_u32.. {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"n": number.to_string()}}}));
        match api.patch("orders", &PatchParams::default(), &patch).await {
            Ok(_) => away = None,
            Err(error) => {
                let since = *away.get_or_insert_with(Instant::now);
                let excused = since.elapsed() < hung::process() && is_away(&error) && slow.was_noted(installed).await?;
                ensure!(excused, "request {number}: {error}");
                say(&format!("request {number} met a machine that stood still: {error}"));
            }
        }
        // Others are to have a moment of the machine.
        pass(Duration::from_millis(300)).await;
    }
    anyhow::bail!("numbers have ended")
}

/// Whether a request was passed on to nobody.
fn is_away(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 503 || status.message.contains("failed calling webhook"))
}

/// From when on it counts that probes of KUN had no answer in time. Whoever was slow gets no requests for a moment, of a kube-apiserver or of our
/// own; no authority that is not believed, and nothing else that an exchange can break, is told so.
struct Slow {
    since: Timestamp,
    logged: u64,
}

impl Slow {
    fn log(installed: &Installed) -> Result<PathBuf> {
        Ok(installed.kubernetes.state().context("the cluster is ours")?.join("parts/kube-apiserver.log"))
    }

    fn since_now(installed: &Installed) -> Result<Self> {
        // Events are of whole seconds.
        let since = Timestamp::now() - Duration::from_secs(1);
        Ok(Self { since, logged: fs::metadata(Self::log(installed)?)?.len() })
    }

    /// Whether a kubelet or the kube-apiserver has said so, or says it soon.
    async fn was_noted(&self, installed: &Installed) -> Result<bool> {
        let begin = Instant::now();
        while begin.elapsed() < hung::answer() {
            let mut log = fs::File::open(Self::log(installed)?)?;
            log.seek(SeekFrom::Start(self.logged))?;
            let mut lines = BufReader::new(log).lines().map_while(Result::ok);
            let events = installed.listed("events", SYSTEM, "").await?;
            if lines.any(|line| line.contains("v1.redis.kun.io failed with") && is_of_time(&line))
                || events.iter().any(|event| self.is_of_a_probe(event))
            {
                return Ok(true);
            }
            pass(Duration::from_millis(500)).await;
        }
        Ok(false)
    }

    fn is_of_a_probe(&self, event: &Value) -> bool {
        let text = |field: &str| event[field].as_str().unwrap_or_default();
        let is_since = text("lastTimestamp").parse::<Timestamp>().is_ok_and(|last| last >= self.since);
        is_since && text("reason") == "Unhealthy" && is_of_time(text("message"))
    }
}

fn is_of_time(told: &str) -> bool {
    ["deadline exceeded", "Client.Timeout", "timed out", "timeout"].iter().any(|word| told.contains(word))
}

/// Another authority for the certificate by which the kube-apiserver is known to us: believed first, used then, and the
/// former believed no more at the end.
async fn front_proxy(installed: &Installed) -> Result<()> {
    let keys = installed.kubernetes.state().context("the cluster is ours")?.join("keys");
    let former = fs::read_to_string(keys.join("front-proxy-ca.crt"))?;
    let next = Authority::create("kun-test-front-proxy-ca-next")?;
    let issued = next.issue(&Leaf::client("front-proxy", &[], Duration::from_secs(86_400)))?;
    fs::write(keys.join("front-proxy-ca.crt"), format!("{former}{}", next.certificate_pem()))?;
    believed(installed, |bundle| bundle.contains(next.certificate_pem().trim())).await?;
    pass(MOMENT * hung::stretch()).await;
    fs::write(keys.join("front-proxy.key"), &issued.key_pem)?;
    fs::write(keys.join("front-proxy.crt"), &issued.certificate_pem)?;
    pass(seen()).await;
    fs::write(keys.join("front-proxy-ca.crt"), next.certificate_pem())?;
    pass(seen()).await;
    // The kube-apiserver adds to what it publishes and takes nothing away: that is its administrator's to do.
    let only = json!({"data": {"requestheader-client-ca-file": next.certificate_pem()}}).to_string();
    let map = "configmap/extension-apiserver-authentication";
    installed.kubectl.run(&["patch", map, "-n", "kube-system", "--type=merge", "-p", &only]).await?;
    believed(installed, |bundle| !bundle.contains(former.trim())).await?;
    pass(MOMENT * hung::stretch()).await;
    Ok(())
}

/// Waits until the cluster says of its front proxy's authorities what is expected.
async fn believed(installed: &Installed, holds: impl Fn(&str) -> bool) -> Result<()> {
    let told = |map: &Value| map["data"]["requestheader-client-ca-file"].as_str().is_some_and(&holds);
    let system = installed.kubectl.clone().within("kube-system");
    system.until("configmap", "extension-apiserver-authentication", hung::change(), "as expected", told).await.map(drop)
}

/// Whom the Secret of an authority says to believe: the first of them signs.
pub(crate) async fn authority(installed: &Installed, secret: &str) -> Result<String> {
    let found = installed.kubectl.clone().within(SYSTEM).get("secret", secret).await?;
    bundle(&found).with_context(|| format!("{secret}: no bundle"))
}

fn bundle(secret: &Value) -> Option<String> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(secret["data"]["ca.crt"].as_str()?).ok()?;
    String::from_utf8(bytes).ok().filter(|bundle| bundle.contains("CERTIFICATE"))
}

/// Waits until a Secret says no more to believe somebody: after an overlap of a minute, and everything that leads there.
pub(crate) async fn believed_no_more(installed: &Installed, secret: &str, first: &str) -> Result<()> {
    let gone = |found: &Value| bundle(found).is_some_and(|bundle| !bundle.contains(first.trim()));
    let system = installed.kubectl.clone().within(SYSTEM);
    system.until("secret", secret, hung::machine(), "without the first authority", gone).await.map(drop)
}

/// Until this authority is the only one that is believed.
pub(crate) async fn believed_alone(installed: &Installed, secret: &str, signer: &str) -> Result<()> {
    let alone = |found: &Value| bundle(found).is_some_and(|bundle| bundle.trim() == signer.trim());
    let system = installed.kubectl.clone().within(SYSTEM);
    system.until("secret", secret, hung::machine(), "with the signer's authority alone", alone).await.map(drop)
}
