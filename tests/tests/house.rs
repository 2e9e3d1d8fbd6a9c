//! The house rules that a machine can check: who leans on whom, one TLS provider, no unsafe code.

#![allow(clippy::expect_used, reason = "a test ends where something it needs is missing")]

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

/// A file that no `mod` names is not compiled, and what it tests is not tested.
#[test]
fn every_source_is_part_of_a_target() {
    let targets: BTreeSet<_> =
        metadata().packages.iter().flat_map(|package| &package.targets).map(|target| target.src_path.clone()).collect();
    let sources = rust_files(&root());
    let named: BTreeSet<String> = sources
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("source"))
        .flat_map(|text| text.lines().filter_map(module).collect::<Vec<_>>())
        .collect();
    let is_left_out = |file: &&std::path::PathBuf| {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let folder = file.parent().and_then(|folder| folder.file_name()?.to_str()).unwrap_or_default();
        let name = if stem == "mod" { folder } else { stem };
        !named.contains(name) && !targets.iter().any(|target| target.as_std_path() == file.as_path())
    };
    assert_eq!(sources.iter().filter(is_left_out).collect::<Vec<_>>(), Vec::<&std::path::PathBuf>::new());
}

/// The module that a line says is in another file.
fn module(line: &str) -> Option<String> {
    let path = || line.trim().strip_prefix("#[path = \"")?.strip_suffix(".rs\"]")?.rsplit('/').next();
    let name = || line.trim_start_matches("pub").rsplit_once("mod ")?.1.strip_suffix(';');
    path().or_else(name).map(str::to_owned)
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

/// Path of a page, the heading before its tables, and what is short there for which folder.
type Table = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The tables that name a test for each promise and each row.
const TABLES: &[Table] = &[
    (
        "docs/conformance.md",
        "",
        &[("system/", "tests/tests/"), ("informers/", "differential/tests/"), ("corpus/", "differential/corpus/")],
    ),
    ("docs/promises.md", "", &[]),
    ("docs/operations.md", "### Event by event", &[]),
];

/// A table that names what is not there promises what nobody checks.
#[test]
fn every_test_and_every_file_that_a_table_names_is_there() {
    let sources = Sources::read();
    let mut missing = Vec::new();
    for (table, heading, short) in TABLES {
        let text = std::fs::read_to_string(root().join(table)).expect("a table");
        let ends = |line: &str| !heading.is_empty() && line.starts_with("## ");
        let lines = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with(heading)).skip(1);
        for (number, line) in lines.take_while(|(_, line)| !ends(line)).filter(|(_, line)| line.starts_with('|')) {
            let lost = sources.not_found(&named(line), short);
            missing.extend(lost.into_iter().map(|name| format!("{table}:{}: {name}", number + 1)));
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn what_a_table_names_wrongly_is_found() {
    let of = |path: &str, names: &[&str]| (path.to_owned(), names.iter().map(|name| (*name).to_owned()).collect());
    let sources = Sources(vec![of("a/tests/b.rs", &["one_two"]), of("c/b.json", &[]), of("c/d/e.rs", &["three_four"])]);
    let not_found = |line: &str| sources.not_found(&named(line), &[("short/", "a/tests/")]);
    let right = "`b.rs`: `one_two`, `one_t…`; `short/b.rs`: `one_two`; `a/b.rs`; `c/{b,b}.json`; `c/d`: `three_four`; `/a/path` `make test`";
    assert_eq!(not_found(right), Vec::<String>::new());
    // A name that is nowhere, one that is in another file, half a name, a file in another folder, a file that is nowhere.
    let wrong = "`b.rs`: `two_one`, `three_four`, `one_t`; `short/e.rs`; `x.rs`: `one_two`; `c/{b,x}.json`";
    assert_eq!(not_found(wrong), ["two_one", "three_four", "one_t", "short/e.rs", "x.rs", "one_two", "c/x.json"]);
}

/// The sums at the head of the table of rows are those of the table.
#[test]
fn the_table_of_rows_is_counted_rightly() {
    let text = std::fs::read_to_string(root().join("docs/conformance.md")).expect("the table of rows");
    let (head, rest) = text.split_once("\n## Rows that clients break without").expect("the first part");
    let (must, should) = rest.split_once("\n## Rows that make a visible difference").expect("the second part");
    let (errors, must): (Vec<&str>, Vec<&str>) = rows(must).partition(|row| row.starts_with("| E: "));
    let should: Vec<&str> = rows(should).collect();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (all, tested, partly) = count(&must);
    let (faults, told, told_partly) = count(&errors);
    let expected = format!(
        "of {all} rows that a mainstream client breaks without (M), {tested} have a test ({partly} of them for a part only, see \
         \"not:\") and {} have none; of the {faults} rows of the error contract (E), {told} have one ({told_partly} in part).",
        all - tested
    );
    assert!(words(head).contains(&expected), "{expected}");
    let (all, tested, partly) = count(&should);
    let expected = format!("Of {all}, {tested} have a test ({partly} of them for a part only).");
    assert!(words(rest).contains(&expected), "{expected}");
}

/// How many rows there are, how many have a test, and how many of those only for a part.
fn count(rows: &[&str]) -> (usize, usize, usize) {
    let (untested, tested): (Vec<&str>, Vec<&str>) = rows.iter().copied().partition(|row| row.contains("**none**"));
    let partly = tested.iter().filter(|row| row.contains("not: ")).count();
    (untested.len() + tested.len(), tested.len(), partly)
}

/// The rows of the tables in a text, without their heads.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| row |"))
}

/// What a line has between backticks.
fn named(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// Every source file of ours, and the names of the functions in it; other files by path only.
struct Sources(Vec<(String, BTreeSet<String>)>);

impl Sources {
    fn read() -> Self {
        let top = root();
        let with_functions = |file: std::path::PathBuf| {
            let text = if file.extension().is_some_and(|end| end == "rs") {
                std::fs::read_to_string(&file)
            } else {
                Ok(String::new())
            };
            let path = file.strip_prefix(&top).expect("below the root").to_str().expect("a path is text").to_owned();
            (path, functions(&text.expect("source")))
        };
        Self(files(&top).into_iter().map(with_functions).collect())
    }

    /// Which of these names there are not: of files and folders, and of functions in the file that was named before them.
    fn not_found(&self, names: &[&str], short: &[(&str, &str)]) -> Vec<String> {
        let mut missing = Vec::new();
        let mut last: Vec<&BTreeSet<String>> = Vec::new();
        for name in names {
            if name.starts_with('/') || name.contains(' ') {
                // A path of the API, or a command.
            } else if name.contains('/') || [".rs", ".json", ".txt"].iter().any(|end| name.ends_with(end)) {
                for path in spread(name) {
                    last = self.files(&path, short);
                    if last.is_empty() {
                        missing.push(path);
                    }
                }
            } else if name.contains('_') {
                let stem = name.trim_end_matches('…');
                let is_it = |found: &String| found == stem || (stem != *name && found.starts_with(stem));
                if !last.iter().any(|functions| functions.iter().any(is_it)) {
                    missing.push((*name).to_owned());
                }
            }
        }
        missing
    }

    /// The files whose path ends so, or which lie in a folder that is called so. Folders between may be left out.
    fn files(&self, name: &str, short: &[(&str, &str)]) -> Vec<&BTreeSet<String>> {
        let whole =
            short.iter().find_map(|(word, stands_for)| Some(format!("{stands_for}{}", name.strip_prefix(word)?)));
        let whole = whole.unwrap_or_else(|| name.to_owned());
        let wanted: Vec<&str> = whole.trim_end_matches('/').split('/').collect();
        let is_file = name.rsplit('/').next().is_some_and(|last| last.contains('.'));
        let fits = |path: &str| {
            let mut parts = path.split('/').rev().peekable();
            if !is_file {
                let last = wanted.last();
                while parts.next_if(|part| Some(part) != last).is_some() {}
            }
            let mut wanted = wanted.iter().rev().peekable();
            if parts.peek() != wanted.peek().copied() {
                return false;
            }
            for part in parts {
                wanted.next_if(|wanted| **wanted == part);
            }
            wanted.peek().is_none()
        };
        self.0.iter().filter(|(path, _)| fits(path)).map(|(_, functions)| functions).collect()
    }
}

/// `a/{b,c}.json` is `a/b.json` and `a/c.json`.
fn spread(name: &str) -> Vec<String> {
    let parts = name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match parts {
        None => vec![name.to_owned()],
        Some((before, (inner, after))) => inner.split(',').map(|one| format!("{before}{one}{after}")).collect(),
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

/// The names of the functions in a source.
fn functions(text: &str) -> BTreeSet<String> {
    let rests = text.lines().filter_map(|line| Some(line.split_once("fn ")?.1));
    rests.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()).collect()
}
