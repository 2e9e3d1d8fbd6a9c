//! What the scripts behind `make test` and `make soak`, and the project's own check, do when something comes in between.

use std::{fs, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    checkout::{Checkout, is_alive, told},
    stage::until,
};

const COUNTED: &str =
    "soak: 600 faults injected, 600 of them into Redis clusters, 400 writes acknowledged, 1 of them lost";

#[test]
fn a_soak_tells_what_it_counted_also_when_a_test_failed() {
    let soak = |run: &str| {
        let checkout = Checkout::of(&["Makefile", "tests/soak.sh"]).with("tests/run.sh", run);
        told(&checkout.command("make", &["soak"]).output().unwrap())
    };
    let (lines, code) = soak("echo '600 400 1 cluster: Off' >>\"$KUN_TALLY\"; exit 3");
    assert_eq!((lines.first().map(String::as_str), code), (Some(COUNTED), Some(2)), "{lines:?}");
    let (lines, code) = soak("echo '500 400 0 store' >>\"$KUN_TALLY\"");
    let all = "soak: 500 faults injected, 0 of them into Redis clusters, 400 writes acknowledged, 0 of them lost";
    assert_eq!((lines, code), (vec![all.to_owned()], Some(0)));
    let (lines, code) = soak("true");
    let few = "soak: with fewer than 500 faults nothing is known";
    assert_eq!((lines.get(1).map(String::as_str), code), (Some(few), Some(2)), "{lines:?}");
}

#[test]
fn a_soak_of_no_size_is_an_error_before_anything_runs() {
    let checkout = Checkout::of(&["Makefile", "tests/soak.sh"]).with("tests/run.sh", "touch ran");
    for size in ["many", "0", "-1", "1001", "7 "] {
        let (lines, code) = told(&checkout.command("make", &["soak"]).env("SOAK", size).output().unwrap());
        let expected = format!("soak: SOAK is a number from 1 to 1000, not '{size}'");
        assert_eq!((lines.first(), code), (Some(&expected), Some(2)), "{lines:?}");
    }
    assert!(!checkout.path("ran").exists());
}

#[test]
fn a_soak_that_is_ended_alone_ends_its_run_and_tells_what_it_counted() {
    let run = "echo '600 400 1 cluster: Off' >>\"$KUN_TALLY\"; echo $$ >begun; mv begun run; exec sleep 1000";
    for (signal, is_made) in [(Signal::TERM, true), (Signal::INT, false), (Signal::HUP, false)] {
        let checkout = Checkout::of(&["Makefile", "tests/soak.sh"]).with("tests/run.sh", run);
        let (program, words): (&str, &[&str]) = if is_made { ("make", &["soak"]) } else { ("tests/soak.sh", &[]) };
        let output = fs::File::create(checkout.path("told")).unwrap();
        let mut soak = checkout.command(program, words).stdout(output).stderr(Stdio::null()).spawn().unwrap();
        until("it runs", || checkout.path("run").exists());
        kill_process(Pid::from_child(&soak), signal).unwrap();
        assert!(!soak.wait().unwrap().success());
        until("the run has ended", || !is_alive(&fs::read_to_string(checkout.path("run")).unwrap()));
        until("it is told", || fs::read_to_string(checkout.path("told")).unwrap() == format!("{COUNTED}\n"));
    }
}

/// What `tests/run.sh` calls.
fn run(build: &str) -> Checkout {
    Checkout::of(&["tests/run.sh", "tests/signals.sh", "tests/phase.sh", "tests/noise/under.sh"])
        .with("tests/setup.sh", "true")
        .with("tests/memory.sh", "pwd")
        .with("tests/cluster/all.sh", "true")
        .with("tests/build.sh", build)
        .with("target/debug/suites", "echo suites \"$3\"")
}

#[test]
fn a_run_whose_phases_another_one_of_its_checkout_has_taken_goes_on() {
    // The phase of Kubernetes may be written down before or after.
    let checkout = run("sleep 0.2; while [ ! -e target/test/phases ]; do sleep 0.1; done; rm target/test/phases");
    let out = checkout.command("tests/run.sh", &["word"]).output().unwrap();
    assert_eq!(told(&out), (vec!["suites word".to_owned()], Some(0)));
}

#[test]
fn a_run_that_is_told_more_than_once_to_end_ends_its_build() {
    let checkout = run("exec >/dev/null; echo $$ >begun; mv begun build; exec sleep 1000");
    let mut run = checkout.command("tests/run.sh", &[]).spawn().unwrap();
    until("it builds", || checkout.path("build").exists());
    // As by a Ctrl-C that whoever called it passes on.
    while run.try_wait().unwrap().is_none() {
        kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    }
    until("the build has ended", || !is_alive(&fs::read_to_string(checkout.path("build")).unwrap()));
}

#[test]
fn noise_that_cannot_be_is_an_error_before_anything_is_built() {
    let checkout = run("touch built");
    let noise = |noise: &str, seed: &str| {
        let mut command = checkout.command("tests/run.sh", &["word"]);
        told(&command.env("NOISE", noise).env("NOISE_SEED", seed).output().unwrap())
    };
    assert_eq!(noise("2", "1"), (vec!["NOISE is 0 or 1, not '2'".to_owned()], Some(2)));
    // Who is not root hears of that first.
    let (lines, code) = noise("1", "many");
    assert!(lines.len() == 1 && lines[0].starts_with("noise: "), "{lines:?}");
    assert_eq!((code, checkout.path("built").exists()), (Some(1), false));
    assert_eq!(noise("0", "many"), (vec!["suites word".to_owned()], Some(0)));
}

#[test]
fn the_table_of_a_run_has_no_phases_of_an_earlier_one_but_those_of_its_lint() {
    let checkout =
        run("tests/phase.sh build true").with("target/debug/suites", "sed 's/ [^ ]*$//' \"$2\" | LC_ALL=C sort");
    fs::create_dir_all(checkout.path("target/test")).unwrap();
    let phases = |is_linted: bool| {
        // As by a run that was killed, or by lint.
        fs::write(checkout.path("target/test/phases"), "earlier 1.0\n").unwrap();
        let mut command = checkout.command("tests/run.sh", &[]);
        command.env("KUN_LINTED", if is_linted { "1" } else { "" });
        told(&command.output().unwrap()).0
    };
    assert_eq!(phases(false), ["Kubernetes and its images", "build"]);
    assert_eq!(phases(true), ["Kubernetes and its images", "build", "earlier"]);
}

#[test]
fn the_check_builds_as_it_is_written_down_whatever_flags_its_caller_has() {
    let checkout = Checkout::of(&[".ci/run"]).with("bin/make", "[ \"$1\" != test ] || env");
    let dropped = [
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUST_TEST_THREADS",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_PROFILE_DEV_DEBUG_ASSERTIONS",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
        "CLIPPY_CONF_DIR",
        "KUN_TEST_CLUSTER",
        "KUBECONFIG",
    ];
    let stays = [
        "CARGO_HOME",
        "CARGO_TARGET_DIR",
        "CARGO_NET_OFFLINE",
        "CARGO_REGISTRIES_OURS_INDEX",
        "HTTPS_PROXY",
        "KUN_CACHE",
    ];
    let mut command = checkout.command(".ci/run", &[]);
    for variable in dropped.iter().chain(&stays) {
        command.env(variable, "/x");
    }
    let (lines, code) = told(&command.output().unwrap());
    assert_eq!(code, Some(0), "{lines:?}");
    let has = |variable: &&str| lines.iter().any(|line| line.starts_with(&format!("{variable}=")));
    assert_eq!((dropped.into_iter().find(has), stays.into_iter().find(|one| !has(one))), (None, None));
}
