//! What is kept of others' code outside the checkout: whole, or not used; and a cache that cannot be written costs only time.

use std::{fs, path::PathBuf, process::Command};

use super::checkout::{Checkout, told};

/// A checkout in which others' code is built, for `tests/cache.sh`.
fn built() -> Checkout {
    let checkout = Checkout::of(&["tests/cache.sh", "tests/partial.sh", "tests/places.sh"])
        .with("bin/cargo", "true")
        .with("bin/rustc", "echo host: none")
        .with("bin/git", "true");
    for folder in ["target/test", "target/debug/deps", "target/debug/build/b", "target/debug/.fingerprint/f", ".cargo"]
    {
        fs::create_dir_all(checkout.path(folder)).unwrap();
    }
    for file in ["Cargo.lock", ".cargo/config.toml", "target/test/build.json", "target/debug/deps/libx-0.rlib"] {
        fs::write(checkout.path(file), "x").unwrap();
    }
    checkout
}

/// The folders of its cache.
fn kept(checkout: &Checkout) -> Vec<PathBuf> {
    fs::read_dir(checkout.path("cache")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// In place of mv: nothing of the cache can be renamed, whoever asks.
const STUCK: &str = "case \"$*\" in *cache/partial*) exit 1 ;; esac\nPATH=${PATH#*:} exec mv \"$@\"";

#[test]
fn a_folder_that_is_not_whole_and_cannot_be_removed_is_passed_over() {
    let checkout = built();
    let cache = |action| {
        // One that is looked at again and again would hang.
        let (limit, mut words) = (hung::process().as_secs().to_string(), vec![]);
        words.extend([limit.as_str(), "tests/cache.sh", action, "debug"]);
        told(&checkout.command("timeout", &words).output().unwrap())
    };
    assert_eq!(cache("save").1, Some(0));
    let [older] = &kept(&checkout)[..] else { panic!("one folder") };
    fs::write(checkout.path("Cargo.lock"), "y").unwrap();
    assert_eq!(cache("save").1, Some(0));
    let exact = kept(&checkout).into_iter().find(|path| path != older).unwrap();
    fs::remove_file(exact.join("deps/libx-0.rlib")).unwrap();
    checkout.install("bin/mv", &format!("#!/bin/sh\n{STUCK}\n"));
    let restore = || {
        fs::remove_dir_all(checkout.path("target/debug")).unwrap();
        let (lines, code) = cache("restore");
        let passed = lines.iter().filter(|line| line.contains("is not as it was saved")).count();
        (passed, code, checkout.path("target/debug/deps/libx-0.rlib").exists())
    };
    assert_eq!(restore(), (1, Some(0), true));
    fs::remove_file(older.join("manifest")).unwrap();
    assert_eq!(restore(), (2, Some(0), false));
    assert!(exact.exists() && older.exists());
}

/// Makes a folder of the cache, with a program and a link to it.
const MAKE: &str =
    "begin_partial cache; echo x >\"$partial/kube\"; ln -s kube \"$partial/kubelet\"; finish_partial cache/x";

/// What a script says that sources `tests/partial.sh`, and its exit code.
fn with_partial(checkout: &Checkout, script: &str) -> (Vec<String>, Option<i32>) {
    let script = format!(". tests/partial.sh; {script}");
    told(&checkout.command("bash", &["-euc", &script]).output().unwrap())
}

#[test]
fn what_has_lost_a_file_is_not_whole_and_is_made_anew() {
    let checkout = Checkout::of(&["tests/partial.sh", "tests/places.sh"]);
    let bash = |script: &str| with_partial(&checkout, script);
    let is_whole = || bash("is_whole cache/x").1 == Some(0);
    assert!(!is_whole());
    assert_eq!((bash(MAKE), is_whole()), ((vec![], Some(0)), true));
    for break_it in ["rm cache/x/kube", ": >cache/x/kube", "rm cache/x/kubelet", "rm cache/x/manifest"] {
        assert_eq!((bash(break_it).1, is_whole()), (Some(0), false), "{break_it}");
        assert_eq!((bash(MAKE), is_whole()), ((vec![], Some(0)), true), "{break_it}");
    }
    fs::remove_file(checkout.path("cache/x/kube")).unwrap();
    checkout.install("bin/mv", &format!("#!/bin/sh\n{STUCK}\n"));
    assert_eq!(bash(MAKE), (vec!["cache/x is not as it was made, and cannot be replaced".to_owned()], Some(1)));
    assert_eq!(kept(&checkout), [checkout.path("cache/x")]);
}

#[test]
fn what_a_run_uses_stays_when_the_cache_is_deleted_or_breaks() {
    let checkout = Checkout::of(&["tests/partial.sh", "tests/places.sh"]);
    let bash = |script: &str| with_partial(&checkout, script);
    let here = fs::canonicalize(checkout.path("")).unwrap().join("target/used/x").display().to_string();
    assert_eq!((bash("linked x").1, bash(MAKE).1), (Some(1), Some(0)));
    assert_eq!(bash("link_here cache/x"), (vec![here.clone()], Some(0)));
    assert_eq!(bash("is_whole cache/x").1, Some(0), "nothing of the cache is written by that");
    assert_eq!(bash("rm -r cache; cat target/used/x/kubelet"), (vec!["x".to_owned()], Some(0)));
    assert_eq!(bash("linked x"), (vec![here.clone()], Some(0)));
    // What is not whole here is linked anew.
    assert_eq!((bash("rm target/used/x/kube; linked x").1, bash(MAKE).1), (Some(1), Some(0)));
    assert_eq!(bash("link_here cache/x; linked x"), (vec![here.clone(), here], Some(0)));
}

const CHECKS: &str = "checks --log-level error check bans licenses sources";

/// `tests/deny.sh` with a cargo that installs a program which only says that it checks.
fn licence_checker() -> Checkout {
    let install = r#"while [ "$1" != --root ]; do shift; done; mkdir -p "$2/bin"; touch "$2/.crates.toml"
        printf '#!/bin/sh\necho checks "$@"\n' > "$2/bin/cargo-deny"; chmod 755 "$2/bin/cargo-deny""#;
    Checkout::of(&["tests/deny.sh", "tests/partial.sh", "tests/places.sh"])
        .with("bin/cargo", install)
        .with("bin/rustc", "echo host: ${HOST:-one}")
}

#[test]
fn the_licence_checker_is_built_for_each_toolchain_and_where_it_is_not_whole() {
    let checkout = licence_checker();
    let is_built = |host: &str| {
        let (lines, code) = told(&checkout.command("tests/deny.sh", &[]).env("HOST", host).output().unwrap());
        assert_eq!((lines.first().map(String::as_str), code), (Some(CHECKS), Some(0)), "{lines:?}");
        lines.iter().any(|line| line.starts_with("building "))
    };
    assert_eq!([is_built("one"), is_built("one"), is_built("other"), is_built("one")], [true, false, true, false]);
    for folder in kept(&checkout) {
        // By itself it would be a script that finds no fault.
        fs::write(folder.join("bin/cargo-deny"), "").unwrap();
    }
    assert_eq!([is_built("one"), is_built("one")], [true, false]);
}

#[test]
fn a_cache_that_cannot_be_written_costs_the_licence_checker_only_time() {
    let checkout = licence_checker();
    // Not by root either.
    let deny = || told(&checkout.command("tests/deny.sh", &[]).env("KUN_CACHE", "/dev/null/kun").output().unwrap());
    let (lines, code) = deny();
    assert_eq!((lines.first().map(String::as_str), lines.len(), code), (Some(CHECKS), 3, Some(0)), "{lines:?}");
    assert!(lines[1].starts_with("the cache /dev/null/kun cannot be written; cargo-deny-"), "{lines:?}");
    assert_eq!(deny(), (vec![CHECKS.to_owned()], Some(0)));
}

#[test]
fn a_cache_that_cannot_be_copied_says_why_in_a_line() {
    let checkout = built();
    let cache = |action| told(&checkout.command("tests/cache.sh", &[action, "debug"]).output().unwrap());
    assert_eq!(cache("save").1, Some(0));
    fs::remove_dir_all(checkout.path("target/debug")).unwrap();
    let checkout = checkout.with("bin/cp", "for file in a b c; do echo \"cp: no $file\" >&2; done; exit 1");
    let out = checkout.command("tests/cache.sh", &["restore", "debug"]).output().unwrap();
    assert_eq!(told(&out), (vec!["cp: no a".to_owned()], Some(1)));
    assert!(!checkout.path("target/debug/deps").exists());
}

#[test]
fn the_licence_checker_is_kept_whatever_cargo_leaves_beside_it() {
    let checkout = licence_checker();
    let deny = || told(&checkout.command("tests/deny.sh", &[]).output().unwrap());
    let (lines, code) = deny();
    assert_eq!((lines.first().map(String::as_str), code), (Some(CHECKS), Some(0)), "{lines:?}");
    // It is not built again.
    assert_eq!(deny(), (vec![CHECKS.to_owned()], Some(0)));
}

#[test]
fn what_nobody_has_used_for_a_month_leaves_the_cache() {
    let checkout = Checkout::of(&["tests/partial.sh", "tests/places.sh"]);
    for (folder, days) in
        [("cluster-old", 40), ("images-old", 40), ("cluster-used", 40), ("images-new", 20), ("rust-old", 40)]
    {
        let path = checkout.path("cache").join(folder);
        fs::create_dir_all(&path).unwrap();
        assert!(Command::new("touch").args(["-d", &format!("{days} days ago")]).arg(&path).status().unwrap().success());
    }
    let script = ". tests/partial.sh; keep_used cache cache/cluster-used";
    assert!(checkout.command("bash", &["-euc", script]).status().unwrap().success());
    let mut left: Vec<_> = fs::read_dir(checkout.path("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["cluster-used", "images-new", "rust-old"]);
}
