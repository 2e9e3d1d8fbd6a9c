//! What is recorded of requests, in Kubernetes' own words. Pure, but for reading the policy.

use std::path::PathBuf;

use apiserver::configuration;
use apiserver::filter::audit::log::{MEGABYTES, Target};
use apiserver::filter::audit::policy::Policy;

use crate::log::chain;

/// Flags about the audit log.
#[derive(Debug, clap::Args)]
pub(super) struct AuditFlags {
    /// What is recorded of which request: an audit Policy as Kubernetes has it. Absent: one line of metadata for each change,
    /// in audit.log below --data.
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Where the events of the policy go, one JSON line each; - for standard output.
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// Megabytes after which the file is put aside and a new one begun [default: 100].
    #[arg(long, value_name = "MEGABYTES")]
    audit_log_maxsize: Option<u64>,
    /// How many files that were put aside are kept; 0 keeps all [default: 0].
    #[arg(long, value_name = "COUNT")]
    audit_log_maxbackup: Option<usize>,
}

/// What is recorded, and where it goes.
#[derive(Clone, Debug)]
pub struct Audit {
    /// What.
    pub policy: Policy,
    /// Where.
    pub target: Target,
}

/// Why the flags cannot be used together.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("--audit-policy-file: say where the events go with --audit-log-path FILE, or - for standard output")]
    NoLog,
    #[error("{0}: say what is recorded with --audit-policy-file FILE")]
    NoPolicy(&'static str),
    #[error("{0}: only a file is put aside; give --audit-log-path FILE")]
    NoFile(&'static str),
    #[error("--audit-log-maxsize 0: a file must hold something")]
    NoSize,
    #[error("--audit-policy-file: {}", chain(.0))]
    Policy(configuration::Error),
}

/// From flags to what is recorded; none: the line for each change.
pub(super) fn recorded(flags: AuditFlags) -> Result<Option<Audit>, Error> {
    let AuditFlags { audit_policy_file, audit_log_path, audit_log_maxsize, audit_log_maxbackup } = flags;
    let rotation = [
        ("--audit-log-maxsize", audit_log_maxsize.is_some()),
        ("--audit-log-maxbackup", audit_log_maxbackup.is_some()),
    ];
    let rotation = rotation.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag));
    let Some(policy) = audit_policy_file else {
        let given = audit_log_path.is_some().then_some("--audit-log-path").or(rotation);
        return given.map_or(Ok(None), |flag| Err(Error::NoPolicy(flag)));
    };
    let path = Some(audit_log_path.ok_or(Error::NoLog)?).filter(|path| path.as_os_str() != "-");
    if let (None, Some(flag)) = (&path, rotation) {
        return Err(Error::NoFile(flag));
    }
    let size = audit_log_maxsize.unwrap_or(MEGABYTES);
    if size == 0 {
        return Err(Error::NoSize);
    }
    let policy = Policy::load(&policy).map_err(Error::Policy)?;
    let backups = audit_log_maxbackup.filter(|count| *count > 0);
    Ok(Some(Audit { policy, target: Target { path, size_max: size.saturating_mul(1 << 20), backups } }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: AuditFlags,
    }

    fn given(words: &[&str]) -> Result<Option<Audit>, String> {
        let line = Line::try_parse_from(["kun"].iter().chain(words)).unwrap();
        recorded(line.flags).map_err(|error| error.to_string())
    }

    #[test]
    fn every_wrong_combination_is_refused_with_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let bad = dir.path().join("bad.yaml");
        std::fs::write(&bad, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Most}]\n").unwrap();
        let bad = bad.to_str().unwrap();
        for (words, part) in [
            (vec!["--audit-policy-file", "p"], "say where the events go"),
            (vec!["--audit-log-path", "l"], "--audit-log-path: say what is recorded"),
            (vec!["--audit-log-maxbackup", "3"], "--audit-log-maxbackup: say what is recorded"),
            (vec!["--audit-policy-file", "p", "--audit-log-path", "-", "--audit-log-maxsize", "3"], "only a file"),
            (vec!["--audit-policy-file", "p", "--audit-log-path", "l", "--audit-log-maxsize", "0"], "must hold"),
            (vec!["--audit-policy-file", "/no/such", "--audit-log-path", "l"], "reading /no/such: "),
            (vec!["--audit-policy-file", bad, "--audit-log-path", "l"], "bad.yaml: rules[0].level: must be one of"),
        ] {
            let refused = given(&words).unwrap_err();
            assert!(refused.contains(part), "{words:?}: {refused}");
        }
    }

    #[test]
    fn nothing_is_recorded_by_default_and_the_defaults_of_the_log_are_those_of_kubernetes() {
        assert!(given(&[]).unwrap().is_none());
        let dir = tempfile::tempdir().unwrap();
        let policy = dir.path().join("policy.yaml");
        std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n").unwrap();
        let policy = policy.to_str().unwrap();
        let target = |words: &[&str]| given(words).unwrap().unwrap().target;
        let plain = target(&["--audit-policy-file", policy, "--audit-log-path", "/a/b.log"]);
        assert_eq!(plain, Target { path: Some("/a/b.log".into()), size_max: 100 << 20, backups: None });
        let words = ["--audit-policy-file", policy, "--audit-log-path", "/b", "--audit-log-maxsize", "1"];
        let chosen = target(&[&words[..], &["--audit-log-maxbackup", "5"]].concat());
        assert_eq!(chosen, Target { path: Some("/b".into()), size_max: 1 << 20, backups: Some(5) });
        let standard = target(&["--audit-policy-file", policy, "--audit-log-path", "-"]);
        assert_eq!(standard.path, None);
    }
}
