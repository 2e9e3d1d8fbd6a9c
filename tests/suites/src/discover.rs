//! Which test programs there are, from what cargo said when it built them.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    /// The crate and, but for its unit tests, the test target: `plan`, `plan-planning`.
    pub(crate) name: String,
    /// The program.
    pub(crate) program: PathBuf,
    /// Where cargo would run it: the crate's folder.
    pub(crate) folder: PathBuf,
}

/// Those with tests in them, in the order of their names.
pub(crate) fn suites(messages: &str) -> Result<Vec<Suite>> {
    let (mut found, mut is_finished) = (Vec::new(), false);
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line).context("a message of cargo")?;
        found.extend(suite(&message));
        is_finished |= message.pointer("/reason").and_then(Value::as_str) == Some("build-finished")
            && message.pointer("/success") == Some(&Value::Bool(true));
    }
    // Programs are missing where it has not.
    ensure!(is_finished, "cargo does not say that the build has finished");
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.dedup();
    // The log of one would be the outcome of both.
    let double = found.windows(2).find_map(|two| match two {
        [one, other] if one.name == other.name => Some(one.name.clone()),
        _ => None,
    });
    ensure!(double.is_none(), "two test programs are called {}", double.unwrap_or_default());
    Ok(found)
}

/// Those whose names contain one of the words, or all where there is none. A word that is in no name is a mistake: what was meant would
/// not run, and nobody would see that.
pub(crate) fn wanted(suites: Vec<Suite>, words: &[String]) -> Result<Vec<Suite>> {
    let fits = |suite: &Suite, word: &String| suite.name.contains(word.as_str());
    let names: Vec<&str> = suites.iter().map(|suite| suite.name.as_str()).collect();
    let lost = words.iter().filter(|word| !suites.iter().any(|suite| fits(suite, word)));
    let lost: Vec<String> = lost.map(|word| format!("{word:?}")).collect();
    ensure!(lost.is_empty(), "no suite has {} in its name; there are: {}", lost.join(" or "), names.join(", "));
    ensure!(!suites.is_empty(), "no test program was built");
    Ok(suites.into_iter().filter(|suite| words.is_empty() || words.iter().any(|word| fits(suite, word))).collect())
}

fn suite(message: &Value) -> Option<Suite> {
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    if text("/reason") != Some("compiler-artifact") || message.pointer("/profile/test") != Some(&Value::Bool(true)) {
        return None;
    }
    let folder = PathBuf::from(text("/manifest_path")?).parent()?.to_owned();
    // `path+file:///…/controller/plan#0.1.0`, or with the name before the version where the folder is called otherwise.
    let package = text("/package_id")?.rsplit_once('#')?.1;
    let package = match package.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder.file_name()?.to_str()?.to_owned(),
    };
    let target = text("/target/name")?;
    let name = match text("/target/kind/0")? {
        "lib" => package,
        "bin" | "test" => format!("{package}-{target}"),
        // Examples have no tests.
        _ => return None,
    };
    Some(Suite { name, program: text("/executable")?.into(), folder })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_found_and_nothing_else() {
        let artifact = |id: &str, kind: &str, target: &str, test: bool| {
            serde_json::json!({"reason": "compiler-artifact", "package_id": id, "manifest_path": "/w/controller/plan/Cargo.toml",
                "target": {"kind": [kind], "name": target}, "profile": {"test": test}, "executable": format!("/t/{target}")})
            .to_string()
        };
        let messages = [
            artifact("path+file:///w/controller/plan#0.1.0", "lib", "plan", true),
            artifact("path+file:///w/controller/plan#0.1.0", "lib", "plan", false),
            artifact("path+file:///w/controller/plan#planner@0.1.0", "test", "planning", true),
            artifact("path+file:///w/controller/plan#0.1.0", "example", "figures", true),
            "warning: not a message".to_owned(),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = suites(&messages.join("\n")).unwrap();
        let of = |name: &str, program: &str| Suite {
            name: name.to_owned(),
            program: program.into(),
            folder: "/w/controller/plan".into(),
        };
        assert_eq!(found, [of("plan", "/t/plan"), of("planner-planning", "/t/planning")]);
        assert!(suites("{\"reason\":").is_err());
        let error = |messages: &[String]| suites(&messages.join("\n")).unwrap_err().to_string();
        let (half, finished) = messages.split_at(messages.len() - 1);
        assert_eq!(error(half), "cargo does not say that the build has finished");
        let same = artifact("path+file:///w/controller/plan#0.1.0", "bin", "planning", true);
        let other = artifact("path+file:///w/controller/plan#0.1.0", "test", "planning", true).replace("/t/", "/u/");
        assert_eq!(error(&[&[same, other], finished].concat()), "two test programs are called plan-planning");
    }
}
