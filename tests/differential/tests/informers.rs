//! Informers of client-go on our server while writers change what they follow, with and without watch-lists, client-go's
//! own detector of differences between a list and a watch-list switched on.
//!
//! There is no harness around it: what was counted is to be seen in every run.

use std::{
    path::Path,
    process::{ExitCode, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use tests::standalone::Standalone;
use tokio::process::Command;

const NAME: &str = "informers_of_client_go_lose_nothing";

#[tokio::main]
async fn main() -> ExitCode {
    tests::cluster::alone(NAME, run()).await
}

async fn run() -> Result<()> {
    let Some(tools) = tests::cluster::built("tools.sh", NAME)? else { return Ok(()) };
    for watch_list in [true, false] {
        let kun = Standalone::start_with(&["--roles", "apiserver"], &[]).await?;
        follow(&tools.join("informer"), &kun.data().join("kubeconfig"), watch_list).await?;
    }
    Ok(())
}

/// Runs the program; it judges what it saw itself. It would wait for ever for a list that does not end.
async fn follow(program: &Path, kubeconfig: &Path, watch_list: bool) -> Result<()> {
    let status = Command::new(program)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg(format!("--watch-list={watch_list}"))
        .env("KUBE_FEATURE_WatchListClient", watch_list.to_string())
        .env("KUBE_WATCHLIST_INCONSISTENCY_DETECTOR", "true")
        .env(hung::VARIABLE, hung::stretch().to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status();
    let limit = 2 * hung::change();
    let status =
        tokio::time::timeout(limit, status).await.with_context(|| format!("it hangs: more than {limit:?}"))??;
    ensure!(status.success(), "with watch-lists {watch_list}: {status}");
    Ok(())
}
