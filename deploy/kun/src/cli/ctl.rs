//! Flags of `kun ctl`. Those that kubectl has are called as there.

use std::path::PathBuf;
use std::process::ExitCode;

use super::run_with;
use crate::ctl::recover::{self, Options, Scope};
use crate::log::Form;

/// `kun ctl`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Ctl {
    /// Brings RedisClusters back that our store has lost, or has in an older state, from their StatefulSets. Safe to repeat.
    Recover(RecoverFlags),
}

/// Flags of `kun ctl recover`.
#[derive(Debug, clap::Args)]
pub(super) struct RecoverFlags {
    /// Only this RedisCluster.
    #[arg(value_name = "NAME", conflicts_with = "all_namespaces")]
    name: Option<String>,
    /// Namespace to look in; absent: the kubeconfig's own.
    #[arg(short, long, value_name = "NAMESPACE", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Look everywhere.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Have everything checked, say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// How to reach the API server; absent: as kubectl does.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; absent: its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Runs what is asked for.
pub(super) fn run(what: Ctl) -> ExitCode {
    match what {
        Ctl::Recover(flags) => run_with(Form::Text, 0, None, recover::run(options(flags))),
    }
}

fn options(flags: RecoverFlags) -> Options {
    let RecoverFlags { name, namespace, all_namespaces, dry_run, kubeconfig, context } = flags;
    let scope = match (all_namespaces, namespace) {
        (true, _) => Scope::All,
        (false, Some(namespace)) => Scope::Namespace(namespace),
        (false, None) => Scope::Default,
    };
    Options { kubeconfig, context, scope, name, dry_run }
}
