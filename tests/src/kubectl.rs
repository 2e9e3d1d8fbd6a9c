//! Real kubectl, with a kubeconfig of its own and nothing of the caller's.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::LazyLock,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::{io::AsyncWriteExt, process::Command};

use crate::follow::{Followed, Which};

/// The machine's own. That of Google Cloud's SDK starts for each command another program, as `kubectl.1.33` beside it, once it has asked the server for its
/// version: both took as much of the processors as all that our API server answered to them.
static MACHINE: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::var_os("PATH").unwrap_or_default();
    newest_beside_the_first("kubectl", &path).unwrap_or_else(|| "kubectl".into())
});

/// Of the programs of this name with a version behind it that lie beside the one that this path leads to.
fn newest_beside_the_first(name: &str, path: &OsStr) -> Option<PathBuf> {
    let found = std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| file.is_file())?;
    let folder = found.canonicalize().ok()?.parent()?.to_owned();
    let version = |file: &str| {
        let (major, minor) = file.strip_prefix(name)?.strip_prefix('.')?.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    };
    let files = folder.read_dir().ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let newest = files.filter_map(|file| Some((version(&file)?, file))).max()?.1;
    Some(folder.join(newest))
}

/// kubectl for one cluster.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
    namespace: Option<String>,
}

/// How a kubectl ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Kubectl {
    /// kubectl with this kubeconfig; `home` receives its caches.
    #[must_use]
    pub fn new(kubeconfig: &Path, home: &Path) -> Self {
        let (program, home) = (MACHINE.clone(), home.to_owned());
        Self { program, kubeconfig: kubeconfig.to_owned(), home, namespace: None }
    }

    /// The same, in this namespace where nothing else is said.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// The same, as somebody else.
    #[must_use]
    pub fn kubeconfig(mut self, kubeconfig: PathBuf) -> Self {
        self.kubeconfig = kubeconfig;
        self
    }

    /// The same, but this kubectl instead of the machine's.
    #[must_use]
    pub fn program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// Runs kubectl with `stdin` and returns how it ended.
    pub async fn outcome(&self, args: &[&str], stdin: &str) -> Result<Outcome> {
        let mut child = Command::new(&self.program)
            // Before the others: what follows `--` is another program's.
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .args(self.namespace.iter().map(|namespace| format!("--namespace={namespace}")))
            .args(args)
            .env_remove("KUBECONFIG")
            .env("HOME", &self.home)
            // It lives for a moment: its garbage needs no collection.
            .env("GOGC", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start kubectl")?;
        let mut pipe = child.stdin.take().context("kubectl's standard input")?;
        pipe.write_all(stdin.as_bytes()).await.ok();
        drop(pipe);
        // A kubectl that waits brings its own limit (`waiting`), which is shorter and whose end it explains.
        let out = tokio::time::timeout(hung::machine(), child.wait_with_output())
            .await
            .with_context(|| format!("kubectl {args:?} hangs"))??;
        Ok(Outcome {
            success: out.status.success(),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        })
    }

    /// Runs kubectl, which must succeed; returns its standard output.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        self.feed(args, "").await
    }

    /// Runs kubectl with a standard input, which must succeed; returns its standard output.
    pub async fn feed(&self, args: &[&str], stdin: &str) -> Result<String> {
        let outcome = self.answer(args, stdin).await?;
        if !outcome.success {
            bail!("kubectl {} failed: {}{}", args.join(" "), outcome.stderr, outcome.stdout);
        }
        Ok(outcome.stdout)
    }

    /// Runs kubectl until what it is told is more than for a moment, and returns how it ended then. What is told for a moment, nobody has done.
    pub async fn answer(&self, args: &[&str], stdin: &str) -> Result<Outcome> {
        let (begun, mut again) = (Instant::now(), false);
        loop {
            let mut outcome = self.outcome(args, stdin).await?;
            // It may have been told so while it waited for the end of what it had deleted.
            outcome.success |= again && args.first() == Some(&"delete") && outcome.stderr.contains("(NotFound)");
            if outcome.success || !is_for_a_moment(&outcome.stderr) || begun.elapsed() > hung::process() {
                return Ok(outcome);
            }
            again = true;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Creates an object at a path; returns it.
    pub async fn create_at(&self, path: &str, object: &Value) -> Result<Value> {
        let answer = self.feed(&["create", "--raw", path, "-f", "-"], &object.to_string()).await?;
        serde_json::from_str(&answer).with_context(|| format!("what was created at {path}"))
    }

    /// Waits until a namespace that is being deleted is gone. Kubernetes empties it of pods first, and where they take a moment it looks again only
    /// after half their grace period, or at its next resync, five minutes apart; a change of the namespace makes it look at once
    /// (`pkg/controller/namespace`).
    pub async fn namespace_gone(&self, name: &str) -> Result<()> {
        self.run(&["wait", "pods", "--all", "--namespace", name, "--for=delete", &waiting()]).await?;
        let object = format!("namespace/{name}");
        let told = self.outcome(&["annotate", &object, "kun.test/emptied=true"], "").await?;
        ensure!(told.success || told.stderr.contains("NotFound"), "{}", told.stderr);
        self.run(&["wait", &object, "--for=delete", &waiting()]).await.map(drop)
    }

    /// Runs kubectl, which must be refused; returns what it told the user.
    pub async fn refused(&self, args: &[&str], stdin: &str) -> Result<String> {
        let outcome = self.answer(args, stdin).await?;
        if outcome.success {
            bail!("kubectl {} was accepted: {}", args.join(" "), outcome.stdout);
        }
        Ok(outcome.stderr.trim().to_owned())
    }

    /// One object as JSON, as the same user; where its kind is not known here kubectl itself reads it.
    pub async fn get(&self, resource: &str, name: &str) -> Result<Value> {
        if !Followed::knows(resource) {
            let text = self.run(&["get", resource, name, "-o", "json"]).await?;
            return serde_json::from_str(&text).context("kubectl get -o json");
        }
        let followed = self.followed(resource, Which::Named(name)).await?;
        let read = patiently(|| followed.get(name)).await;
        read.with_context(|| format!("get {resource} {name}"))
    }

    /// The objects of a kind that a selector of labels finds; an empty one finds all.
    pub async fn list(&self, resource: &str, selector: &str) -> Result<Vec<Value>> {
        let followed = self.followed(resource, Which::Labelled(selector)).await?;
        let read = patiently(|| followed.list()).await;
        Ok(read.with_context(|| format!("list {resource} {selector}"))?.0)
    }

    async fn followed(&self, resource: &str, which: Which<'_>) -> Result<Followed> {
        Followed::new(&self.kubeconfig, self.namespace.as_deref(), resource, which).await
    }

    /// Watches an object until `holds` is true of it; fails with its last state after `limit`. A server that is away for a moment is
    /// part of some tests.
    pub async fn until(
        &self,
        resource: &str,
        name: &str,
        limit: Duration,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let one = |objects: &[Value]| objects.first().is_some_and(&holds);
        let found = self.wait(resource, Which::Named(name), limit, what, &one).await?;
        found.into_iter().next().with_context(|| format!("{resource}/{name}"))
    }

    /// The same of all objects that a selector of labels finds.
    pub async fn until_all(
        &self,
        resource: &str,
        selector: &str,
        limit: Duration,
        what: &str,
        holds: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>> {
        self.wait(resource, Which::Labelled(selector), limit, what, &holds).await
    }

    async fn wait(
        &self,
        resource: &str,
        which: Which<'_>,
        limit: Duration,
        what: &str,
        holds: &impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>> {
        let followed = self.followed(resource, which).await?;
        let mut last = Ok(Vec::new());
        match tokio::time::timeout(limit, followed.until(&mut last, holds)).await {
            Ok(found) => Ok(found),
            Err(_) => {
                let last = last.map_or_else(|error| format!("{error:#}"), shown);
                bail!("{resource} {which:?}: not {what} after {limit:?}; last seen: {last}")
            }
        }
    }
}

/// Asks again for as long as what is told is of a moment, whose end nothing tells.
async fn patiently<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> Result<T> {
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(error) if is_for_a_moment(&format!("{error:#}")) && begun.elapsed() < hung::process() => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            ended => return ended,
        }
    }
}

/// Objects as text, without who owns which of their fields. What their conditions say comes first: a long text is cut.
fn shown(mut objects: Vec<Value>) -> String {
    for metadata in objects.iter_mut().filter_map(|object| object["metadata"].as_object_mut()) {
        metadata.remove("managedFields");
    }
    let told: String = objects.iter().map(conditions).collect();
    format!("{told}{}", Value::Array(objects))
}

/// What the conditions of an object say, and of which generation.
fn conditions(object: &Value) -> String {
    let all = object["status"]["conditions"].as_array();
    let said = all.into_iter().flatten().map(|condition| {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        format!("{}={} {}; ", text("type"), text("status"), text("message"))
    });
    let said: String = said.collect();
    if said.is_empty() { said } else { format!("observed {}: {said}", object["status"]["observedGeneration"]) }
}

/// The flag that has `kubectl wait` and `kubectl delete` wait for a change for as long as nothing hangs.
#[must_use]
pub fn waiting() -> String {
    format!("--timeout={}s", hung::change().as_secs())
}

/// The condition of a kind in the status of an object; null where there is none.
#[must_use]
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    all.into_iter().flatten().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

/// What is told of a moment, and not of what was asked for. KUN says "try again" where it has not seen enough yet: one look at a cluster may have
/// had no answer. A kube-apiserver has nobody pass a group's requests on as soon as one probe of it was slow, has no document of the group then,
/// and probes again soon. Webhooks whose kubelet did not reach them in time get no requests for a moment, and an etcd waits for its disk for seven
/// seconds.
const MOMENTS: &[&str] = &[
    "try again",
    "no synced replica to promote",
    "the server is currently unable to handle the request",
    "the server doesn't have a resource type",
    "no matches for kind",
    "failed calling webhook",
    "etcdserver: request timed out",
    "TLS handshake timeout",
];

/// Whether that is all that somebody was told.
#[must_use]
pub fn is_for_a_moment(told: &str) -> bool {
    MOMENTS.iter().any(|moment| told.contains(moment))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_program_that_only_starts_another_one_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let (bin, sdk) = (folder.path().join("bin"), folder.path().join("sdk"));
        let newest = |path: &Path| newest_beside_the_first("kubectl", path.as_os_str());
        for made in [&bin, &sdk] {
            std::fs::create_dir(made).unwrap();
        }
        std::fs::write(sdk.join("kubectl"), "").unwrap();
        std::os::unix::fs::symlink(sdk.join("kubectl"), bin.join("kubectl")).unwrap();
        assert_eq!((newest(folder.path()), newest(&bin)), (None, None));
        for name in ["kubectl.1.9", "kubectl.1.33", "kubectl.1.33.bak", "kubectl.old", "helm.2.0"] {
            std::fs::write(sdk.join(name), "").unwrap();
        }
        let found = sdk.canonicalize().unwrap().join("kubectl.1.33");
        assert_eq!((newest(&bin), newest(&sdk)), (Some(found.clone()), Some(found)));
    }
}
