//! What a scenario is, and what scenarios share. It must not know what they are.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::BoxFuture;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;
use tests::{
    installed::{Installed, is_ready},
    oracle::{self, Shape},
    writer::Writer,
};

/// What `orders` is between scenarios.
pub(crate) const ORDERS: Shape = Shape { shards: 3, replicas: 1 };
/// Chart values for a rotation that a test can wait for: longer than a kubelet takes to bring a Secret into a pod.
pub(crate) const OVERLAP: &str = "certificates.overlap=60s";

/// What a scenario does to a cluster beside what users do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: it runs wherever KUN can be installed.
    AnyCluster,
    /// It breaks or drains nodes, breaks the control plane, reads and changes files and processes of the machines, or needs images
    /// that others' nodes do not have.
    OurOwn,
}

/// Whether others may be at work on the same cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// Yes: it touches what is in its own namespaces only.
    Beside,
    /// No: it breaks KUN or the control plane, or judges what KUN does when nobody asks it for anything.
    Alone,
    /// No: it breaks or fills nodes, of which it needs three.
    Nodes,
}

/// One of them.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) company: Company,
    pub(crate) run: for<'a> fn(&'a Installed) -> BoxFuture<'a, Result<()>>,
}

/// A scenario, called as its function is.
macro_rules! scenario {
    ($needs:ident, $company:ident, $module:ident :: $name:ident) => {
        $crate::scenario::Scenario {
            name: stringify!($name),
            needs: $crate::scenario::Needs::$needs,
            company: $crate::scenario::Company::$company,
            run: |installed| ::std::boxed::Box::pin($crate::$module::$name(installed)),
        }
    };
}
pub(crate) use scenario;

tokio::task_local! {
    /// The scenario that is at work.
    pub(crate) static NAME: &'static str;
}

/// Prints a figure of a run.
#[expect(clippy::print_stdout, reason = "figures and outcomes of a run are to be seen")]
pub(crate) fn say(text: &str) {
    match NAME.try_with(|name| *name) {
        Ok(name) => println!("installed: {name}: {text}"),
        Err(_) => println!("installed: {text}"),
    }
}

/// How long something is away, or how many there are: in full in `make soak`, a slice of it otherwise.
pub(crate) fn away<T>(full: T, slice: T) -> T {
    if std::env::var_os("KUN_SOAK").is_some() { full } else { slice }
}

/// Waits on purpose: the time is what the scenario is about.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// RedisClusters where `orders` lives, as a program sees them.
pub(crate) async fn api(installed: &Installed) -> Result<Api<DynamicObject>> {
    let config = kube::config::Kubeconfig::read_from(installed.kubernetes.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await?;
    let kind = GroupVersionKind::gvk("redis.kun.io", "v1", "RedisCluster");
    let kind = ApiResource::from_gvk_with_plural(&kind, "redisclusters");
    Ok(Api::namespaced_with(kube::Client::try_from(config)?, &installed.home, &kind))
}

/// Tries a request of a program until it succeeds or hangs, and says each time that it did not.
pub(crate) async fn tried<T, F: Future<Output = kube::Result<T>>>(ask: impl Fn() -> F) -> Result<T> {
    let begin = Instant::now();
    loop {
        match ask().await {
            Ok(told) => return Ok(told),
            Err(error) if begin.elapsed() < hung::process() => say(&format!("tried again: {error}")),
            Err(error) => return Err(error.into()),
        }
        pass(Duration::from_millis(300)).await;
    }
}

/// Makes `orders` where a scenario needs it for the first time.
pub(crate) async fn orders(installed: &Installed) -> Result<()> {
    let found = installed.kubectl.run(&["get", "rdc", "orders", "--ignore-not-found", "-o", "name"]).await?;
    if found.is_empty() {
        let begin = Instant::now();
        installed.create(&installed.home, "orders", ORDERS, &serde_json::json!({})).await?;
        say(&format!("apply to Ready: {:.1} s", begin.elapsed().as_secs_f64()));
        all_ready(installed, "orders", 6).await?;
        installed.reaches_pods().await?;
    }
    Ok(())
}

/// Waits until a Service leads to every pod of a cluster, as whoever waited for Ready connects by one next. Where the machine stands still, a
/// probe of a kubelet fails, and the pod is not ready for a moment whatever its cluster says.
pub(crate) async fn all_ready(installed: &Installed, cluster: &str, count: usize) -> Result<()> {
    let selector = format!("redis.kun.io/cluster={cluster}");
    let all = |pods: &[Value]| pods.len() == count && pods.iter().all(is_ready);
    installed.kubectl.until_all("pods", &selector, hung::change(), "ready, each of them", all).await.map(drop)
}

/// Does something under a writer on `orders`: nothing acknowledged is lost by it, and the invariants hold afterwards.
pub(crate) async fn under_writes<T>(
    installed: &Installed,
    change: impl AsyncFnOnce(&Writer) -> Result<T>,
) -> Result<T> {
    orders(installed).await?;
    let writer = installed.write().await?;
    let told = with_state(installed, change(&writer).await).await?;
    let verdict = installed.verify(writer, ORDERS).await?;
    say(&format!("{} acknowledged writes, none lost; worst gap {:?}", verdict.acked, verdict.worst_gap));
    Ok(told)
}

/// A failure, with what everybody says at this moment.
pub(crate) async fn with_state<T>(installed: &Installed, result: Result<T>) -> Result<T> {
    let Err(error) = result else { return result };
    let mut told = oracle::tables(&installed.kubectl, &installed.home, "orders").await;
    for of in [&["get", "pods", "-o", "wide"][..], &["describe", "rdc", "orders"], &["get", "events"]] {
        told += &installed
            .kubectl
            .run(&[&["-n", &installed.home], of].concat())
            .await
            .unwrap_or_else(|error| format!("{error:#}"));
    }
    Err(error.context(told))
}

/// The same where a primary is killed: `change` says when. What Redis' own replication had not passed on then is let pass.
pub(crate) async fn under_writes_and_a_blow(
    installed: &Installed,
    change: impl AsyncFnOnce(&Writer) -> Result<Instant>,
) -> Result<()> {
    orders(installed).await?;
    let writer = installed.write().await?;
    let blow = change(&writer).await?;
    let verdict = installed.verify_but(writer, ORDERS, Some(blow)).await?;
    say(&format!(
        "{} acknowledged writes, none lost but by the blow itself; worst gap {:?}",
        verdict.acked, verdict.worst_gap
    ));
    Ok(())
}

/// Two looks at the same objects, as texts, must be the same: nobody touched them.
pub(crate) fn unchanged(before: &str, after: &str) -> Result<()> {
    anyhow::ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    Ok(())
}
