//! What a test of the whole system is for is said where it is.

use super::{root, runs::is_test, rust_files};

/// Programs of one crate, or of one Redis: what they show is shown nowhere else more cheaply by their place already.
const OTHERS: [&str; 4] = ["chart.rs", "house.rs", "main.rs", "steps.rs"];

/// These cost most, so what something cheaper can show is not shown here.
#[test]
fn every_test_of_the_whole_system_says_what_only_it_can_show() {
    let top = root().join("tests/tests");
    let is_whole = |file: &std::path::PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let folder = file.parent().expect("a folder");
        folder == top.join("installed") || (folder == top && !OTHERS.contains(&name))
    };
    let silent = |file: std::path::PathBuf| {
        let text = std::fs::read_to_string(&file).expect("source");
        without_doc(&text).into_iter().map(move |name| format!("{}: {name}", file.display())).collect::<Vec<_>>()
    };
    let silent: Vec<String> = rust_files(&top).into_iter().filter(is_whole).flat_map(silent).collect();
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn a_test_or_a_scenario_without_a_word_is_found() {
    let text = "/// Told.\n#[tokio::test]\nasync fn told() {}\n\n#[test]\nfn silent() {}\n\nfn other() {}\n\n\
                pub(crate) async fn scenario(installed: &Installed) {}\n\n\
                pub(crate) async fn long(\n    installed: &Installed,\n) -> Result<()> {\n}\n\n\
                #[tokio::test(flavor = \"multi_thread\", worker_threads = 2)]\nasync fn flavoured() {}\n\n\
                #[test]\n#[expect(\n    clippy::panic,\n)]\nfn attributed() {}\n\n\
                /// Told.\n#[tokio::test(flavor = \"multi_thread\")]\n#[expect(\n    clippy::panic,\n)]\nasync fn told_too() {}\n";
    let silent = [
        "fn silent() {}",
        "pub(crate) async fn scenario(installed: &Installed) {}",
        "pub(crate) async fn long(",
        "async fn flavoured() {}",
        "fn attributed() {}",
    ];
    assert_eq!(without_doc(text), silent);
}

/// The first lines of tests and scenarios above which nothing is said.
fn without_doc(text: &str) -> Vec<&str> {
    let (mut is_told, mut is_marked, mut silent) = (false, false, Vec::new());
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().copied().enumerate() {
        if line.starts_with("///") {
            is_told = true;
        } else if line.starts_with("#[") {
            is_marked |= is_test(line);
        } else if line.starts_with(' ') || line == ")]" {
            // An attribute goes on, or what stands inside of an item.
        } else {
            // What it is called with may stand below its name.
            let called = [line, lines.get(number + 1).copied().unwrap_or_default().trim()].concat();
            let is_scenario = line.starts_with("pub(crate) async fn") && called.contains("(installed: &Installed");
            if (is_marked || is_scenario) && !is_told {
                silent.push(line);
            }
            (is_told, is_marked) = (false, false);
        }
    }
    silent
}
