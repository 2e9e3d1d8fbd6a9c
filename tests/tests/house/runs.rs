//! Which functions run as tests. Any other one may be called by a test, or by nobody.

use std::collections::BTreeSet;

use super::root;

/// The sources that call functions by a list of their names, each with the folder in which those are.
const LISTS: [(&str, &str); 2] = [
    ("tests/tests/installed/main.rs", "tests/tests/installed/"),
    ("apiserver/store/src/conformance.rs", "apiserver/store/src/conformance/"),
];

/// What such lists name, each with the folder.
pub(super) struct Lists(Vec<(&'static str, BTreeSet<String>)>);

impl Lists {
    pub(super) fn read() -> Self {
        let names = |list: &str| {
            let names = listed(&std::fs::read_to_string(root().join(list)).expect("a list"));
            assert!(!names.is_empty(), "{list} names nothing");
            names
        };
        Self(LISTS.into_iter().map(|(list, folder)| (folder, names(list))).collect())
    }

    /// The names of the functions in a source that run as tests.
    pub(super) fn tests(&self, path: &str, text: &str) -> BTreeSet<String> {
        let stem = path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        let names = self.0.iter().find(|(folder, _)| path.starts_with(*folder)).map(|(_, names)| names);
        let is_listed = |name: &String| {
            names.is_some_and(|names| names.contains(name) || names.contains(&format!("{stem}::{name}")))
        };
        let listed = text.lines().filter_map(function).filter(is_listed);
        marked(text).into_iter().chain(listed).chain(bitten(text)).chain(alone(text)).collect()
    }
}

/// Whether a line is an attribute that makes the function below it a test, or the first line of one. A text in which there is such an
/// attribute goes on after it.
pub(super) fn is_test(line: &str) -> bool {
    let attribute = line.trim_start().strip_prefix("#[").filter(|rest| rest.ends_with([']', '(']));
    let name = attribute.and_then(|rest| rest.split(['(', ']']).next());
    name.is_some_and(|name| name == "test" || name.ends_with("::test"))
}

/// Those below such an attribute, also inside of `proptest!`.
fn marked(text: &str) -> Vec<String> {
    let (mut is_marked, mut found) = (false, Vec::new());
    for line in text.lines() {
        if is_test(line) {
            is_marked = true;
        } else if let Some(name) = function(line) {
            found.extend(std::mem::take(&mut is_marked).then_some(name));
        }
    }
    // Of the `$name` of a macro nothing is left.
    found.retain(|name| !name.is_empty());
    found
}

/// The name of the function that begins on a line.
fn function(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("fn ")?;
    let is_head = before.split_whitespace().all(|word| word == "async" || word.starts_with("pub"));
    is_head.then(|| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

/// What a list names: scenarios and what judges them all, with their module, and the checks of every store.
fn listed(text: &str) -> BTreeSet<String> {
    let checks = text.split("checks! { $subject;").skip(1).filter_map(|rest| rest.split('}').next());
    let checks = checks.flat_map(|names| names.split(',')).map(str::trim).filter(|name| !name.is_empty());
    text.lines().filter_map(scenario).chain(checks).map(str::to_owned).collect()
}

/// The scenario that a line names: `scenario!(…, …, module::name),` or `judge: module::name,`.
fn scenario(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let one = || line.strip_prefix("scenario!(")?.strip_suffix("),")?.rsplit(", ").next();
    one().or_else(|| line.strip_prefix("judge: ")?.strip_suffix(','))
}

/// The tests that `bites!` makes: `Property, name_of_the_test: history => …`.
fn bitten(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().skip_while(|line| *line != "bites! {").take_while(|line| *line != "}");
    lines.filter_map(|line| Some(line.split_once(", ")?.1.split_once(": history =>")?.0.to_owned()))
}

/// The test that a program without a harness is.
fn alone(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.strip_prefix("const NAME: &str = \"")?.strip_suffix("\";"))?;
    text.contains("tests::cluster::alone(NAME, ").then(|| name.to_owned())
}

/// The tests that are found in a source in the folder `list/`, whose list names `told::of` and `by_name`.
fn found(path: &str, text: &str) -> Vec<String> {
    let names = BTreeSet::from(["told::of", "by_name"].map(str::to_owned));
    Lists(vec![("list/", names)]).tests(path, text).into_iter().collect()
}

#[test]
fn a_function_is_a_test_by_its_attribute_and_not_by_its_name() {
    let text = "#[test]\nfn a_a() {}\n\nfn a_helper() {}\n\n\
                #[tokio::test(flavor = \"multi_thread\")]\n#[expect(\n    clippy::panic,\n)]\n/// Told.\nasync fn b_b() {}\n\n\
                proptest! {\n    #[test]\n    fn c_c(one in any()) {}\n}\n\npub(crate) async fn a_shared_one() {}\n\n\
                // #[test]\n// fn taken_away() {}\n#[cfg(test)]\nfn only_for_tests() {}\n";
    assert_eq!(found("a/b.rs", text), ["a_a", "b_b", "c_c"]);
}

#[test]
fn the_attributes_of_tests_are_told_from_others() {
    for line in ["#[test]", "    #[tokio::test]", "#[tokio::test(start_paused = true)]", "#[tokio::test("] {
        assert!(is_test(line), "{line}");
    }
    for line in ["#[cfg(test)]", "#[cfg_attr(test, x)]", "// #[test]", "#[attest]", "test]", "#[test]\\n\\"] {
        assert!(!is_test(line), "{line}");
    }
}

#[test]
fn a_test_that_a_macro_makes_is_one() {
    let text = "fn a_a() {}\n\nmacro_rules! bites {\n            #[test]\n            fn $name() {}\n}\n\nfn g_g() {}\n\n\
                bites! {\n    Unique, b_b: history => {\n        let a = c(d, e);\n    };\n    Atomic, f_f: history => g();\n}\n\n\
                #[test]\nfn h_h() {}\n";
    assert_eq!(found("a/b.rs", text), ["b_b", "f_f", "h_h"]);
}

/// A scenario of another module's name is another one, and a function that no list names is called by some test at most.
#[test]
fn a_function_that_a_list_names_is_a_test_where_it_is_meant() {
    let text =
        "pub(crate) async fn of(a: &A) {}\n\npub(crate) async fn by_name(\n    a: &A,\n) {\n}\n\nfn helper() {}\n";
    assert_eq!(found("list/told.rs", text), ["by_name", "of"]);
    assert_eq!(found("list/other.rs", text), ["by_name"]);
    assert_eq!(found("another/told.rs", text), Vec::<String>::new());
}

#[test]
fn a_list_names_what_it_calls_and_nothing_that_is_taken_out_of_it() {
    let scenarios = "const SCENARIOS: &[Scenario] = &[\n    scenario!(OurOwn, Nodes, nodes::a_a),\n    // scenario!(OurOwn, Nodes, nodes::b_b),\n\
                     ];\n    gather: account::told,\n    judge: account::c_c,\n";
    assert_eq!(listed(scenarios), BTreeSet::from(["account::c_c", "nodes::a_a"].map(str::to_owned)));
    let checks = "        crate::checks! { $subject;\n            a_a,\n            b_b,\n        }\n    checks! { $subject; c_c, }\n";
    assert_eq!(listed(checks), BTreeSet::from(["a_a", "b_b", "c_c"].map(str::to_owned)));
}

#[test]
fn a_program_without_a_harness_is_a_test_by_its_name() {
    let text = "const NAME: &str = \"a_a\";\n\nasync fn main() {\n    tests::cluster::alone(NAME, run()).await\n}\n";
    assert_eq!(found("a/b.rs", text), ["a_a"]);
    assert_eq!(found("a/b.rs", "const NAME: &str = \"a_a\";\n\nfn main() {}\n"), Vec::<String>::new());
}
