//! The house rules that a machine can check: who leans on whom, one TLS provider, no unsafe code.

#![allow(clippy::expect_used, reason = "a test ends where something it needs is missing")]

mod modules;
mod runs;
mod tables;
mod whole;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// Who may lean on whom, as stated in docs/architecture.md ("Who may lean on whom"). `*` stands for every crate of ours.
const ALLOWED: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("merge", &[]),
    ("store", &[]),
    ("certs", &[]),
    ("listen", &["certs"]),
    ("plan", &[]),
    ("resp", &[]),
    ("apiserver", &["types", "merge", "store", "certs", "listen"]),
    ("webhook", &["types", "certs", "listen"]),
    ("controller", &["types", "plan", "resp", "certs"]),
    ("agent", &["types", "resp", "certs", "listen"]),
    ("kun", &["*"]),
    ("tests", &["*"]),
    ("hung", &[]),
    ("suites", &["hung"]),
    ("bench", &["*"]),
    ("differential", &["*"]),
];

fn metadata() -> Metadata {
    MetadataCommand::new().no_deps().exec().expect("cargo metadata")
}

#[test]
fn crates_lean_only_on_the_crates_that_the_architecture_allows() {
    let metadata = metadata();
    let ours: BTreeSet<String> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    assert_eq!(ours, allowed.keys().map(|name| (*name).to_owned()).collect(), "every crate has a line in ALLOWED");

    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let may = allowed[package.name.as_str()];
        for dependency in package.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal) {
            if ours.contains(&dependency.name) && !may.contains(&"*") && !may.contains(&dependency.name.as_str()) {
                wrong.push(format!("{} -> {}", package.name, dependency.name));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Five rows of promises.md stood between them for a day.
#[test]
fn no_file_holds_the_marks_of_a_merge() {
    let mark = |sign: &str| format!("^{}( |$)", sign.repeat(7));
    let words = ["-C", "..", "grep", "-InE", &[mark("<"), mark(">")].join("|")];
    let out = Command::new("git").args(words).output().expect("git");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "");
    assert_eq!(out.status.code(), Some(1), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn the_allowed_edges_are_the_ones_written_in_the_architecture() {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).expect("docs/architecture.md");
    for (name, may) in ALLOWED {
        let row = match *may {
            [] => format!("| `{name}` | – |"),
            ["*"] => format!("| `{name}` | everything |"),
            list => format!("| `{name}` | {} |", list.join(", ")),
        };
        assert!(text.contains(&row), "docs/architecture.md lacks the row: {row}");
    }
}

#[test]
fn the_planner_leans_on_nothing_at_all() {
    let metadata = metadata();
    let plan = metadata.packages.iter().find(|package| package.name == "plan").expect("crate plan");
    let normal: Vec<_> = plan.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal).collect();
    assert!(normal.is_empty(), "{normal:?}");
    let head = std::fs::read_to_string(root().join("controller/plan/src/lib.rs")).expect("plan/src/lib.rs");
    assert!(head.contains("no_std"), "plan is no_std, so that a clock or a socket in it does not compile");
}

#[test]
fn pure_crates_contain_no_async() {
    for folder in ["apiserver/types/src", "apiserver/merge/src", "controller/plan/src"] {
        for file in rust_files(&root().join(folder)) {
            let text = std::fs::read_to_string(&file).expect("source");
            let found = text.lines().find(|line| !line.trim_start().starts_with("//") && line.contains("async fn"));
            assert_eq!(found, None, "{}", file.display());
        }
    }
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for package in metadata().packages {
        let text = std::fs::read_to_string(&package.manifest_path).expect("manifest");
        assert!(text.contains("[lints]\nworkspace = true"), "{}", package.manifest_path);
    }
    let text = std::fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    assert!(text.contains("unsafe_code = \"forbid\""));
    assert!(text.contains("overflow-checks = true"));
}

/// An example in a doc comment would be a test, and rustdoc would build every crate once more to find that there is none.
#[test]
fn no_doc_comment_holds_code_that_would_have_to_run() {
    for package in metadata().packages {
        let is_library = package.targets.iter().any(|target| target.is_lib());
        assert!(!is_library || package.targets.iter().all(|target| !target.doctest), "{}", package.manifest_path);
    }
    for file in rust_files(&root()) {
        let text = std::fs::read_to_string(&file).expect("source");
        let docs = text.lines().map(str::trim_start).filter(|line| line.starts_with("///") || line.starts_with("//!"));
        let fences: Vec<&str> = docs.map(|line| line[3..].trim()).filter(|line| line.starts_with("```")).collect();
        let code: Vec<&&str> = fences.iter().step_by(2).filter(|fence| **fence != "```text").collect();
        assert_eq!(code, Vec::<&&str>::new(), "{}", file.display());
    }
}

/// A bar of time fails where a machine is busy. What a person would find slow is told by `make bench`; a test says that something hangs, by one of
/// the limits of `hung`.
#[test]
fn no_test_asserts_that_something_took_less_than_any_time_of_its_own() {
    // They run tests or measure, and are none.
    let others = ["tests/suites/src", "tests/bench/src"].map(|folder| root().join(folder));
    for file in rust_files(&root()).iter().filter(|file| !others.iter().any(|folder| file.starts_with(folder))) {
        let text = std::fs::read_to_string(file).expect("source");
        let bars: Vec<&str> = assertions(&text).filter(|told| told.contains(concat!("elapsed()", " <"))).collect();
        let own: Vec<&&str> = bars.iter().filter(|told| !told.contains("hung::")).collect();
        assert_eq!(own, Vec::<&&str>::new(), "{}", file.display());
    }
}

/// What is asserted in a source, each with its message.
fn assertions(text: &str) -> impl Iterator<Item = &str> {
    let begins = text.match_indices("assert!(").chain(text.match_indices("ensure!("));
    begins.map(|(begin, _)| {
        let rest = &text[begin..];
        rest.find(");").map_or(rest, |end| &rest[..end])
    })
}

#[test]
fn an_assertion_is_read_to_its_end() {
    let text = "assert!(a() < b);\nensure!(\n    c < d,\n    \"late\"\n);\nx();";
    assert_eq!(assertions(text).collect::<Vec<_>>(), ["assert!(a() < b", "ensure!(\n    c < d,\n    \"late\"\n"]);
}

#[test]
fn aws_lc_rs_is_the_only_tls_provider() {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--edges", "normal,build,dev", "--invert", "ring"])
        .current_dir(root())
        .output()
        .expect("cargo tree");
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(text.trim(), "", "ring is in the tree");
}

/// Versions that belong together must not be doubled (reference: crates.md §2).
#[test]
fn crates_that_belong_together_are_there_once() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    for name in
        ["kube", "k8s-openapi", "schemars", "jiff", "json-patch", "tower-http", "serde-saphyr", "rustls", "hyper"]
    {
        let times = lock.lines().filter(|line| *line == format!("name = \"{name}\"")).count();
        assert!(times <= 1, "{name} is in the lock file {times} times");
    }
}

fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("workspace root").to_owned()
}

fn rust_files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    files(folder).into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// All files below a folder but what was built or begins with a dot, in order.
fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if name.as_encoded_bytes().starts_with(b".") || name == "target" {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}
