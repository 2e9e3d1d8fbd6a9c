//! The tables of the documentation name tests that are there, and that run.

use std::collections::BTreeSet;

use super::{files, root, runs::Lists};

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

/// A table that names what is not there, or a function that no test is, promises what nobody checks.
#[test]
fn every_test_and_every_file_that_a_table_names_is_there() {
    let sources = Sources::read();
    let mut missing = Vec::new();
    for (table, heading, short) in TABLES {
        for (number, line) in lines(table, heading) {
            let lost = sources.look_for(&named(&line), short).missing;
            missing.extend(lost.into_iter().map(|name| format!("{table}:{number}: {name}")));
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// What a row says in its last cell where nothing shows what it is about; the reason follows.
const EXCUSES: [&str; 3] = ["| not tested: ", "| **none**: not built: ", "| **none**: untested: "];

/// A file holds many tests: which of them shows it is what a reader looks for, and what is to be seen when it is taken away.
#[test]
fn every_row_of_every_table_names_a_test_or_says_why_there_is_none() {
    let sources = Sources::read();
    let mut without = Vec::new();
    for (table, heading, short) in TABLES {
        let rows = lines(table, heading);
        let is_head = |line: &str| line.starts_with("|--");
        let heads = rows.iter().skip(1).map(|(_, below)| is_head(below)).chain([false]);
        for ((number, line), is_title) in rows.iter().zip(heads) {
            let names_one = !sources.look_for(&named(line), short).tests.is_empty();
            if !is_title && !is_head(line) && !names_one && !is_excused(line) {
                without.push(format!("{table}:{number}: {line}"));
            }
        }
    }
    assert_eq!(without, Vec::<String>::new());
}

/// Whether a row says that it has no test, and why: a word alone, or none, is no reason.
fn is_excused(row: &str) -> bool {
    let reason = EXCUSES.into_iter().find_map(|excuse| Some(row.split_once(excuse)?.1.trim_matches([' ', '|'])));
    reason.is_some_and(|reason| !reason.contains('|') && reason.split_whitespace().count() > 1)
}

#[test]
fn a_row_without_a_test_is_excused_by_a_reason_only() {
    let row = |cell: &str| format!("| A | b | {cell} |");
    for good in ["**none**: not built: nothing needs it", "**none**: untested: it is one", "not tested: it is theirs"] {
        assert!(is_excused(&row(good)), "{good}");
    }
    for bad in ["**none**", "**none**: untested", "**none**: not built: ", "**none**: untested: no", "**none**: by us"]
    {
        assert!(!is_excused(&row(bad)), "{bad}");
    }
    // Its place is the last cell.
    assert!(!is_excused("| **none**: not built: so it is | `a.rs` |"));
}

/// The lines of the tables of a page below a heading, with their numbers.
fn lines(table: &str, heading: &str) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(root().join(table)).expect("a table");
    let ends = |line: &str| !heading.is_empty() && line.starts_with("## ");
    let lines = text.lines().zip(1..).skip_while(|(line, _)| !line.starts_with(heading)).skip(1);
    let rows = lines.take_while(|(line, _)| !ends(line)).filter(|(line, _)| line.starts_with('|'));
    let rows: Vec<_> = rows.map(|(line, number)| (number, line.to_owned())).collect();
    // Whoever calls a heading otherwise would take its table from every check.
    assert!(rows.len() > 2, "{table} has no table below {heading:?}");
    rows
}

#[test]
#[should_panic(expected = "docs/operations.md has no table below \"### Another name\"")]
fn a_table_whose_heading_is_called_otherwise_is_missed() {
    lines("docs/operations.md", "### Another name");
}

#[test]
fn what_a_table_names_wrongly_is_found() {
    let of = |path: &str, names: &[&str]| (path.to_owned(), names.iter().map(|name| (*name).to_owned()).collect());
    let sources = Sources(vec![of("a/tests/b.rs", &["one_two"]), of("c/b.json", &[]), of("c/d/e.rs", &["three_four"])]);
    let look_for = |line: &str| sources.look_for(&named(line), &[("short/", "a/tests/")]);
    let not_found = |line: &str| look_for(line).missing;
    let right = "`b.rs`: `one_two`, `one_t…`; `short/b.rs`: `one_two`; `a/b.rs`; `c/{b,b}.json`; `c/d`: `three_four`; `/a/path` `make test`";
    assert_eq!(not_found(right), Vec::<String>::new());
    // A name that is nowhere, one that is in another file, half a name, a file in another folder, a file that is nowhere.
    let wrong = "`b.rs`: `two_one`, `three_four`, `one_t`; `short/e.rs`; `x.rs`: `one_two`; `c/{b,x}.json`";
    assert_eq!(not_found(wrong), ["two_one", "three_four", "one_t", "short/e.rs", "x.rs", "one_two", "c/x.json"]);
    assert_eq!(look_for(right).tests, ["one_two", "one_t…", "one_two", "three_four"]);
    assert_eq!(look_for("`b.rs` shows it, somewhere: `two_one`").tests, Vec::<String>::new());
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

/// Which tests there are of those that were named, and what there is not.
#[derive(Default)]
struct Found {
    tests: Vec<String>,
    missing: Vec<String>,
}

/// Every source file of ours, and the names of the tests in it; other files by path only.
struct Sources(Vec<(String, BTreeSet<String>)>);

impl Sources {
    fn read() -> Self {
        let (top, lists) = (root(), Lists::read());
        let with_tests = |file: std::path::PathBuf| {
            let text = if file.extension().is_some_and(|end| end == "rs") {
                std::fs::read_to_string(&file)
            } else {
                Ok(String::new())
            };
            let path = file.strip_prefix(&top).expect("below the root").to_str().expect("a path is text").to_owned();
            let tests = lists.tests(&path, &text.expect("source"));
            (path, tests)
        };
        Self(files(&top).into_iter().map(with_tests).collect())
    }

    /// Looks for these names: of files and folders, and of tests in the file that was named before them.
    fn look_for(&self, names: &[&str], short: &[(&str, &str)]) -> Found {
        let mut found = Found::default();
        let mut last: Vec<&BTreeSet<String>> = Vec::new();
        for name in names {
            if name.starts_with('/') || name.contains(' ') {
                // A path of the API, or a command.
            } else if name.contains('/') || [".rs", ".json", ".txt"].iter().any(|end| name.ends_with(end)) {
                for path in spread(name) {
                    last = self.files(&path, short);
                    if last.is_empty() {
                        found.missing.push(path);
                    }
                }
            } else if name.contains('_') {
                let stem = name.trim_end_matches('…');
                let is_it = |one: &String| one == stem || (stem != *name && one.starts_with(stem));
                let is_there = last.iter().any(|tests| tests.iter().any(is_it));
                let list = if is_there { &mut found.tests } else { &mut found.missing };
                list.push((*name).to_owned());
            }
        }
        found
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
        self.0.iter().filter(|(path, _)| fits(path)).map(|(_, tests)| tests).collect()
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
