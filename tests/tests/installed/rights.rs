//! Rights that KUN has not got: named where a person looks, asked for ever more seldom, and enough as soon as they are given.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::{
    installed::{Installed, SYSTEM, is_ready},
    kubectl::{Kubectl, condition},
    story,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    account::{in_vain, length},
    scenario::{pass, say, unchanged, under_writes},
};

/// What is counted in one look at the log.
const WINDOW: Duration = Duration::from_secs(10);
const CONTROLLER: &str = "kun:controller";
/// By it our API server may ask who somebody is and what he may do.
const DELEGATOR: &str = "kun:apiserver:auth-delegator";

/// The controller may not list Services, and starts; then it may not write disruption budgets, and one is missing.
pub(crate) async fn a_missing_right_is_named_and_asked_for_ever_more_seldom(installed: &Installed) -> Result<()> {
    let whole = installed.kubectl.get("clusterrole", CONTROLLER).await?["rules"].clone();
    let outcome = under_writes(installed, async |_| {
        let pods = installed.pods().await?;
        blind(installed, &whole).await?;
        bound(installed, &whole).await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        unchanged(&pods, &installed.pods().await?)
    })
    .await;
    // Other scenarios need them, however this one ends.
    give(installed, CONTROLLER, &whole).await?;
    outcome
}

/// A controller that may not see what there is does nothing, says why it is not ready, and goes on by itself.
async fn blind(installed: &Installed, whole: &Value) -> Result<()> {
    give(installed, CONTROLLER, &without(whole, "services", &["list", "watch"])).await?;
    let (kubectl, since) = (installed.kubectl.clone().within(SYSTEM), (length(installed)?, Instant::now()));
    kubectl.run(&["delete", "pods", "-l", "app.kubernetes.io/name=kun-controller", "--grace-period=1"]).await?;
    let refusal = "services is forbidden: User \"system:serviceaccount:kun-system:kun-controller\" cannot list resource \"services\"";
    let begin = Instant::now();
    let pod = loop {
        let pods = installed.listed("pods", SYSTEM, "app.kubernetes.io/name=kun-controller").await?;
        let pod = pods.into_iter().find(|pod| pod["metadata"]["deletionTimestamp"].is_null()).unwrap_or_default();
        let told = match pod["status"]["podIP"].as_str() {
            Some(address) => readiness(address).await.unwrap_or_else(|error| error.to_string()),
            None => "no address yet".to_owned(),
        };
        if told.contains(refusal) && told.contains("503") {
            break pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        }
        ensure!(begin.elapsed() < hung::change(), "the controller does not say what it lacks: {told}");
        // A pod takes a moment to start.
        pass(Duration::from_millis(500)).await;
    };
    let words = ["logs", &pod, "-c", "controller"];
    let log = logged(&kubectl, &words, &["cannot list resource", "services is forbidden"]).await?;
    let lines = log.lines().filter(|line| line.contains("services is forbidden")).count();
    // Once more where the machine stood still, and something else was wrong in between.
    ensure!(lines <= 2, "{lines} lines say the same: {log}");
    // Two controllers, with pauses of 2, 4 and 8 seconds; they start at different times, and three times as often is still seldom.
    more_seldom(installed, since, "list", "services", 30).await?;
    give(installed, CONTROLLER, whole).await?;
    let ready = |pods: &[Value]| pods.len() == 2 && pods.iter().all(is_ready);
    let resumes = kubectl.until_all("pods", "app.kubernetes.io/name=kun-controller", hung::change(), "Ready", ready);
    resumed("the controllers are Ready", resumes).await
}

/// A log once it has all of these: the kubelet shows it later than it was written.
async fn logged(kubectl: &Kubectl, logs: &[&str], words: &[&str]) -> Result<String> {
    let begin = Instant::now();
    loop {
        let log = kubectl.run(logs).await?;
        if words.iter().all(|word| log.contains(word)) {
            return Ok(log);
        }
        ensure!(begin.elapsed() < hung::process(), "it does not say {words:?}: {log}");
        pass(Duration::from_millis(500)).await;
    }
}

/// What a controller answers to its kubelet.
async fn readiness(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect((address, 8080)).await?;
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await?;
    let mut told = String::new();
    stream.read_to_string(&mut told).await?;
    Ok(told)
}

/// A child that cannot be written is told of on its owner, whose members are told of as ever.
async fn bound(installed: &Installed, whole: &Value) -> Result<()> {
    let kubectl = &installed.kubectl;
    story::ready(kubectl, "orders", 3).await?;
    give(installed, CONTROLLER, &without(whole, "poddisruptionbudgets", &["create", "patch", "update"])).await?;
    pass(Duration::from_secs(1)).await;
    let since = (length(installed)?, Instant::now());
    kubectl.run(&["delete", "pdb", "orders-0"]).await?;
    let refusal =
        "poddisruptionbudgets.policy is forbidden: User \"system:serviceaccount:kun-system:kun-controller\" cannot";
    let told = |cluster: &Value| {
        condition(cluster, "Degraded")["message"].as_str().is_some_and(|message| message.contains(refusal))
            && condition(cluster, "Available")["status"] == "True"
            && condition(cluster, "Ready")["reason"] == "Trouble"
    };
    kubectl.until("rdc", "orders", hung::change(), "telling what it lacks, and serving", told).await?;
    let of_that = |event: &Value| {
        let message = event["message"].as_str().unwrap_or_default();
        event["reason"] == "Trouble"
            && event["involvedObject"]["name"] == "orders"
            && message.contains("poddisruptionbudgets.policy is forbidden")
    };
    kubectl.until_all("events", "", hung::change(), "telling of it", |events| events.iter().any(of_that)).await?;
    // Eight in a row with pauses from 50 ms on, each twice as long; and what else happens to the cluster is a reason to look. Whoever does
    // not pause asks some hundred times.
    more_seldom(installed, since, "create", "poddisruptionbudgets", 40).await?;
    give(installed, CONTROLLER, whole).await?;
    resumed("the budget is there", kubectl.until("pdb", "orders-0", hung::change(), "there", |_| true)).await
}

/// Counts how often something was asked for in vain by all controllers: at most so often at `first` for each window that has passed, and then
/// seldom. What else happens to the cluster is a reason to look as well, and where the machine stands still much happens.
///
/// `since` is how long the audit log was, and when.
async fn more_seldom(
    installed: &Installed,
    (since, at): (u64, Instant),
    verb: &str,
    resource: &str,
    first: usize,
) -> Result<()> {
    let count = |since| in_vain(installed, since, verb, resource);
    let begin = Instant::now();
    while count(since)? == 0 {
        ensure!(begin.elapsed() < hung::change(), "it was never asked for");
        pass(Duration::from_millis(200)).await;
    }
    pass(WINDOW).await;
    let early = count(since)?;
    // A machine that stood still meanwhile has counted longer.
    let windows = at.elapsed().as_secs().div_ceil(WINDOW.as_secs()).max(1);
    ensure!(early <= first * usize::try_from(windows)?, "{early} times in {windows} times {WINDOW:?}");
    loop {
        let middle = length(installed)?;
        pass(WINDOW).await;
        let late = count(middle)?;
        say(&format!(
            "{verb} {resource} asked for in vain: {early} times at first, {late} times in another {WINDOW:?}"
        ));
        if late <= 4 {
            return Ok(());
        }
        ensure!(begin.elapsed() < hung::change(), "{late} times in the last {WINDOW:?}, as in all before");
    }
}

/// Waits until what was given is used.
async fn resumed<T>(what: &str, resumes: impl Future<Output = Result<T>>) -> Result<()> {
    let begin = Instant::now();
    resumes.await.with_context(|| what.to_owned())?;
    say(&format!("{what} {:.1} s after the right was given", begin.elapsed().as_secs_f64()));
    Ok(())
}

async fn give(installed: &Installed, role: &str, rules: &Value) -> Result<()> {
    let patch = json!({"rules": rules}).to_string();
    installed.kubectl.run(&["patch", "clusterrole", role, "--type=merge", "-p", &patch]).await.map(drop)
}

async fn bind(installed: &Installed, subjects: &Value) -> Result<()> {
    let patch = json!({"subjects": subjects}).to_string();
    let words = ["patch", "clusterrolebinding", DELEGATOR, "--type=merge", "-p", &patch];
    installed.kubectl.run(&words).await.map(drop)
}

/// The same rules, but these verbs on a resource.
fn without(rules: &Value, resource: &str, verbs: &[&str]) -> Value {
    let mut kept = Vec::new();
    for rule in rules.as_array().into_iter().flatten() {
        let named = |list: &Value, name: &str| list.as_array().is_some_and(|all| all.iter().any(|one| one == name));
        if !named(&rule["resources"], resource) {
            kept.push(rule.clone());
            continue;
        }
        let but = |list: &Value, out: &[&str]| -> Value {
            let all = list.as_array().into_iter().flatten();
            all.filter(|one| !one.as_str().is_some_and(|one| out.contains(&one))).cloned().collect()
        };
        let (mut others, mut rest) = (rule.clone(), rule.clone());
        others["resources"] = but(&rule["resources"], &[resource]);
        rest["resources"] = json!([resource]);
        rest["verbs"] = but(&rule["verbs"], verbs);
        let is_whole = |rule: &Value| {
            ["resources", "verbs"].iter().all(|part| rule[part].as_array().is_some_and(|list| !list.is_empty()))
        };
        kept.extend([others, rest].into_iter().filter(is_whole));
    }
    Value::Array(kept)
}

/// Neither the API server nor the webhooks guess what they may not ask.
pub(crate) async fn a_server_that_may_not_ask_says_so_and_lets_nobody_in(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    let subjects = kubectl.get("clusterrolebinding", DELEGATOR).await?["subjects"].clone();
    let judging = kubectl.get("clusterrole", "kun:webhook").await?["rules"].clone();
    kubectl.run(&["create", "serviceaccount", "reader"]).await?;
    let role = ["create", "rolebinding", "reader", "--clusterrole=view", "--serviceaccount=default:reader"];
    kubectl.run(&role).await?;
    let reader = installed.service_account("default", "reader").await?;
    let outcome = under_writes(installed, async |_| {
        let pods = installed.pods().await?;
        let reads = || reader.until("rdc", "orders", hung::change(), "shown", |_| true);
        resumed("a reader is let in", reads()).await?;
        give(installed, "kun:webhook", &without(&judging, "subjectaccessreviews", &["create"])).await?;
        unasked(installed).await?;
        give(installed, "kun:webhook", &judging).await?;
        bind(installed, &json!([])).await?;
        // What was decided counts for ten seconds. Whoever may do everything is not asked about.
        let begin = Instant::now();
        let told = loop {
            let told = reader.outcome(&["get", "rdc", "orders"], "").await?;
            if !told.success {
                break told.stderr;
            }
            ensure!(begin.elapsed() < hung::change(), "everybody is let in");
            pass(Duration::from_secs(1)).await;
        };
        ensure!(!told.contains("forbidden") && !told.contains("not found"), "{told}");
        // Where the machine stood still it may have been refused before our server was.
        let words = ["logs", "-n", SYSTEM, "-l", "app.kubernetes.io/name=kun-apiserver", "--tail=1000"];
        loop {
            let log = kubectl.run(&words).await?;
            if log.contains("cannot create resource") && log.contains("subjectaccessreviews") {
                break;
            }
            ensure!(begin.elapsed() < hung::change(), "it does not say what it lacks: {log}");
            reader.outcome(&["get", "rdc", "orders"], "").await?;
            pass(Duration::from_secs(1)).await;
        }
        bind(installed, &subjects).await?;
        resumed("our API answers", reads()).await?;
        story::ready(kubectl, "orders", 3).await?;
        unchanged(&pods, &installed.pods().await?)
    })
    .await;
    bind(installed, &subjects).await?;
    give(installed, "kun:webhook", &judging).await?;
    kubectl.run(&["delete", "serviceaccount/reader", "rolebinding/reader"]).await?;
    outcome
}

/// A cluster that names a Secret is refused as long as the webhooks may not ask whether its author may read it.
async fn unasked(installed: &Installed) -> Result<()> {
    let object =
        tests::installed::sized("default", "named", crate::upkeep::ONE, &json!({"auth": {"secretName": "theirs"}}));
    let create = ["create", "--dry-run=server", "-f", "-"];
    let begin = Instant::now();
    loop {
        let told = installed.kubectl.answer(&create, &object.to_string()).await?;
        if !told.success {
            let words = ["logs", "-n", SYSTEM, "-l", "app.kubernetes.io/name=kun-webhook", "--tail=1000"];
            let log = logged(&installed.kubectl, &words, &["subjectaccessreviews"]).await;
            return log.map(drop).context(told.stderr);
        }
        ensure!(begin.elapsed() < hung::change(), "nobody was asked, and it was let through");
        // The kube-apiserver's authorizer has to hear of the change first.
        pass(Duration::from_millis(500)).await;
    }
}
