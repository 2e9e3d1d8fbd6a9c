//! Real kubectl, with a kubeconfig of its own and nothing of the caller's.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::{io::AsyncWriteExt, process::Command};

/// Longest time one kubectl may take; `kubectl wait` brings its own `--timeout`, which is shorter.
const DEADLINE: Duration = Duration::from_secs(240);

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
        Self { program: "kubectl".into(), kubeconfig: kubeconfig.to_owned(), home: home.to_owned(), namespace: None }
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
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start kubectl")?;
        let mut pipe = child.stdin.take().context("kubectl's standard input")?;
        pipe.write_all(stdin.as_bytes()).await.ok();
        drop(pipe);
        let out = tokio::time::timeout(DEADLINE, child.wait_with_output())
            .await
            .with_context(|| format!("kubectl {args:?} took longer than {DEADLINE:?}"))??;
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
        let outcome = self.outcome(args, stdin).await?;
        if !outcome.success {
            bail!("kubectl {} failed: {}{}", args.join(" "), outcome.stderr, outcome.stdout);
        }
        Ok(outcome.stdout)
    }

    /// Runs kubectl, which must be refused; returns what it told the user.
    pub async fn refused(&self, args: &[&str], stdin: &str) -> Result<String> {
        let outcome = self.outcome(args, stdin).await?;
        if outcome.success {
            bail!("kubectl {} was accepted: {}", args.join(" "), outcome.stdout);
        }
        Ok(outcome.stderr.trim().to_owned())
    }

    /// One object as JSON.
    pub async fn get(&self, resource: &str, name: &str) -> Result<Value> {
        let text = self.run(&["get", resource, name, "-o", "json"]).await?;
        serde_json::from_str(&text).context("kubectl get -o json")
    }

    /// Polls an object until `holds` is true of it; fails with its last state after `limit`.
    pub async fn until(
        &self,
        resource: &str,
        name: &str,
        limit: Duration,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let begin = Instant::now();
        loop {
            // An API server that is down for a moment is part of some tests; the limit bounds the patience.
            let last = self.get(resource, name).await;
            if let Ok(object) = &last
                && holds(object)
            {
                return last;
            }
            if begin.elapsed() > limit {
                bail!("{resource}/{name}: not {what} after {limit:?}; last seen: {last:#?}");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
