//! Every source is compiled: it is the root of a target, or declared from one on the way that the compiler goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{metadata, root, rust_files};

/// A source as a part of a crate: its path, and the folder in which the modules that it declares are. One that several crates share may
/// have others in each of them.
type Place = (String, String);

/// A file that no `mod` names is not compiled, and what it tests is not tested.
#[test]
fn every_source_is_part_of_a_target() {
    let top = root();
    let below = |path: &Path| Some(path.strip_prefix(&top).ok()?.to_str()?.to_owned());
    let targets: Vec<_> = metadata().packages.into_iter().flat_map(|package| package.targets).collect();
    let is_left_out =
        |target: &&cargo_metadata::Target| !target.test && !target.is_custom_build() && !target.is_example();
    let left_out: Vec<&str> = targets.iter().filter(is_left_out).map(|target| target.name.as_str()).collect();
    assert_eq!(left_out, Vec::<&str>::new(), "what is tested in them does not run");
    let roots: Vec<String> = targets.iter().filter_map(|target| below(target.src_path.as_std_path())).collect();
    let read = |file: PathBuf| {
        (below(&file).expect("a path below the root is text"), std::fs::read_to_string(&file).expect("source"))
    };
    let sources: BTreeMap<String, String> = rust_files(&top).into_iter().map(read).collect();
    assert_eq!(orphans(&sources, &roots), Vec::<&str>::new());
}

/// The sources that are neither the root of a target nor declared from one, directly or not.
fn orphans<'a>(sources: &'a BTreeMap<String, String>, roots: &[String]) -> Vec<&'a str> {
    let mut seen: BTreeSet<Place> = BTreeSet::new();
    let mut left: Vec<Place> = roots.iter().map(|root| (root.clone(), folder(root).to_owned())).collect();
    while let Some(place) = left.pop() {
        let Some(text) = sources.get(&place.0) else { continue };
        if seen.insert(place.clone()) {
            left.extend(declared(text).into_iter().filter_map(|(name, path)| find(&place, name, path, sources)));
        }
    }
    let reached: BTreeSet<&String> = seen.iter().map(|(file, _)| file).collect();
    sources.keys().filter(|file| !reached.contains(file)).map(String::as_str).collect()
}

/// The modules of which a source says that they are in other files, with the paths that it gives. Modules inside of others are none of
/// them: their files are told, until somebody needs such.
fn declared(text: &str) -> Vec<(&str, Option<&str>)> {
    let (mut path, mut found) = (None, Vec::new());
    for line in text.lines() {
        if let Some(given) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            path = Some(given);
        } else if let Some(name) = module(line) {
            found.push((name, path.take()));
        }
    }
    found
}

/// The module that a line says is in another file.
fn module(line: &str) -> Option<&str> {
    let (before, name) = line.strip_suffix(';')?.split_once("mod ")?;
    let is_public = before == "pub " || (before.starts_with("pub(") && before.ends_with(") "));
    (before.is_empty() || is_public).then_some(name)
}

/// Where a module is that a source declares.
fn find((file, inside): &Place, name: &str, path: Option<&str>, sources: &BTreeMap<String, String>) -> Option<Place> {
    if let Some(path) = path {
        // Whatever it is called, it is what a `mod.rs` is: its modules are beside it.
        let found = joined(folder(file), path);
        let inside = folder(&found).to_owned();
        return Some((found, inside));
    }
    let inside = joined(inside, name);
    let mut files = [format!("{inside}.rs"), format!("{inside}/mod.rs")].into_iter();
    Some((files.find(|file| sources.contains_key(file))?, inside))
}

/// The folder that a file is in.
fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The path from a folder on, without `..`.
fn joined(folder: &str, path: &str) -> String {
    let mut parts = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// What is told of sources.
fn told(roots: &[&str], sources: &[(&str, &str)]) -> Vec<String> {
    let roots: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
    let sources: BTreeMap<String, String> =
        sources.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
    orphans(&sources, &roots).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_file_whose_name_only_another_crate_declares_is_told() {
    let sources = [
        ("a/src/lib.rs", "pub mod store;\n"),
        ("a/src/store.rs", ""),
        ("b/tests/main.rs", "mod story;\n"),
        ("b/tests/store.rs", "#[test]\nfn nobody_runs_it() {}\n"),
        ("b/tests/story.rs", ""),
    ];
    assert_eq!(told(&["a/src/lib.rs", "b/tests/main.rs"], &sources), ["b/tests/store.rs"]);
    // A target that the manifest does not name any more, with all that belongs to it.
    assert_eq!(told(&["a/src/lib.rs"], &sources), ["b/tests/main.rs", "b/tests/store.rs", "b/tests/story.rs"]);
}

#[test]
fn modules_are_looked_for_where_the_compiler_looks_for_them() {
    let roots = ["a/build.rs", "a/src/main.rs", "a/src/bin/tool.rs", "a/tests/one.rs", "a/tests/two/main.rs"];
    let sources = [
        ("a/build.rs", ""),
        ("a/src/main.rs", "mod plain;\npub mod inner;\npub(crate) mod deep;\n"),
        ("a/src/plain.rs", ""),
        ("a/src/inner/mod.rs", "pub(super) mod beside;\n"),
        ("a/src/inner/beside.rs", ""),
        ("a/src/deep.rs", "#[cfg(test)]\nmod tests;\n"),
        ("a/src/deep/tests.rs", "mod deeper;\n"),
        ("a/src/deep/tests/deeper.rs", ""),
        ("a/src/bin/tool.rs", "mod help;\n"),
        ("a/src/bin/help.rs", ""),
        ("a/tests/one.rs", "mod shared;\n"),
        ("a/tests/shared/mod.rs", ""),
        ("a/tests/two/main.rs", "mod own;\n"),
        ("a/tests/two/own.rs", ""),
    ];
    assert_eq!(told(&roots, &sources), Vec::<String>::new());
    let wrong = [
        // Beside the file that declares a module of this name, and not in its folder; and the other way round.
        ("a/src/tests.rs", ""),
        ("a/tests/own.rs", ""),
        ("a/tests/one/shared.rs", ""),
        ("a/src/bin/tool/help.rs", ""),
        // They name each other, and nobody names them.
        ("a/src/isle.rs", "mod shore;\n"),
        ("a/src/isle/shore.rs", "#[path = \"../isle.rs\"]\nmod isle;\n"),
    ];
    let mut expected = wrong.map(|(file, _)| file);
    expected.sort_unstable();
    assert_eq!(told(&roots, &[&sources[..], &wrong[..]].concat()), expected);
}

#[test]
fn a_path_is_followed_from_the_file_that_gives_it() {
    let api = "#[path = \"api/list.rs\"]\nmod list;\n#[path = \"../../b/tests/clock.rs\"]\n#[allow(dead_code)]\nmod time;\n\
               mod other;\n";
    let sources = [
        ("a/tests/api.rs", api),
        ("a/tests/api/list.rs", "mod pages;\n"),
        ("a/tests/api/pages.rs", ""),
        ("a/tests/other.rs", ""),
        ("b/tests/clock.rs", ""),
        // Nobody declares these: the names are those of others.
        ("a/tests/api/list/pages.rs", ""),
        ("a/tests/time.rs", ""),
    ];
    assert_eq!(told(&["a/tests/api.rs"], &sources), ["a/tests/api/list/pages.rs", "a/tests/time.rs"]);
}

/// By its path it is like a `mod.rs`, by its name it is not: in both crates its modules are found.
#[test]
fn a_file_that_two_crates_share_is_a_part_of_both() {
    let sources = [
        ("a/src/lib.rs", "mod shared;\n"),
        ("a/src/shared.rs", "mod part;\n"),
        ("a/src/shared/part.rs", ""),
        ("a/src/part.rs", ""),
        ("b/src/lib.rs", "#[path = \"../../a/src/shared.rs\"]\nmod shared;\n"),
    ];
    assert_eq!(told(&["a/src/lib.rs", "b/src/lib.rs"], &sources), Vec::<String>::new());
    assert_eq!(told(&["a/src/lib.rs"], &sources), ["a/src/part.rs", "b/src/lib.rs"]);
}

#[test]
fn what_declares_no_other_file_names_none() {
    let text = "//! mod one;\n// mod two;\nmod three {\n    mod four;\n}\nuse five::mod_five;\nconst SIX: &str = \"mod six;\";\n";
    let files = ["one.rs", "two.rs", "three.rs", "four.rs", "five.rs", "six.rs"].map(|file| (file, ""));
    let sources = [&[("lib.rs", text)][..], &files[..]].concat();
    assert_eq!(told(&["lib.rs"], &sources), ["five.rs", "four.rs", "one.rs", "six.rs", "three.rs", "two.rs"]);
}
