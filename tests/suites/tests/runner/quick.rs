//! What `make quick` finds to be tested, and how it ends.

use std::{fs, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    checkout::{Checkout, is_alive, told},
    stage::until,
};

/// `tests/quick.sh` where these files differ.
fn quick(files: &str, cargo: &str) -> Checkout {
    Checkout::of(&["Makefile", "tests/quick.sh", "tests/signals.sh", "tests/lint/settings.sh"])
        .with("tests/cache.sh", "true")
        .with("bin/git", &format!("[ \"$1\" != diff ] || printf '{files}'"))
        .with("bin/cargo", cargo)
}

#[test]
fn a_quick_run_that_does_not_learn_who_leans_on_what_changed_fails() {
    let checkout = quick(r"a/lib.rs\0", "case $1 in tree) exit 101 ;; test) touch tested ;; esac");
    fs::create_dir(checkout.path("a")).unwrap();
    fs::write(checkout.path("a/Cargo.toml"), "[package]\nname = \"a\"\n").unwrap();
    let out = checkout.command("tests/quick.sh", &[]).output().unwrap();
    let line = "quick: cargo does not say who leans on a, and nobody of them would be tested";
    assert_eq!(told(&out), (vec![line.to_owned()], Some(1)));
    assert!(!checkout.path("tested").exists());
}

#[test]
fn a_quick_run_tests_the_package_that_reads_the_chart() {
    let cargo = r#"case $1 in
        metadata) printf '{"name":"kun","version":"0","id":"path+file://%s/deploy/kun#0"}' "$PWD" ;;
        test) echo "$@" >tested ;;
        esac"#;
    let checkout = quick(r"deploy/chart/values.yaml\0deploy/chart/templates/webhook.yaml\0", cargo);
    for file in ["src/lib.rs", "tests/chart.rs", "Cargo.toml"] {
        let file = checkout.path("deploy/kun").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    let lines =
        ["quick: kun", "quick: what helm makes of the chart is looked at by make test TESTS=system"].map(str::to_owned);
    let out = checkout.command("tests/quick.sh", &[]).output().unwrap();
    assert_eq!(told(&out), (lines.to_vec(), Some(0)));
    let tested = fs::read_to_string(checkout.path("tested")).unwrap();
    assert!(tested.ends_with(" --lib --test chart\n"), "{tested}");
}

#[test]
fn a_quick_run_that_is_ended_alone_ends_what_compiles() {
    let cargo = "[ \"$1\" != test ] || { sleep 1000 & echo $! >begun; mv begun compiler; wait; }";
    let checkout = quick(r"a/lib.rs\0", cargo);
    fs::create_dir(checkout.path("a")).unwrap();
    fs::write(checkout.path("a/Cargo.toml"), "[package]\nname = \"a\"\n").unwrap();
    let mut quick = checkout.command("make", &["quick"]).stdout(Stdio::null()).spawn().unwrap();
    until("cargo compiles", || checkout.path("compiler").exists());
    kill_process(Pid::from_child(&quick), Signal::TERM).unwrap();
    assert!(!quick.wait().unwrap().success());
    until("the compiler has ended", || !is_alive(&fs::read_to_string(checkout.path("compiler")).unwrap()));
}
