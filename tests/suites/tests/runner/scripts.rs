//! What the scripts behind `make test`, `make quick` and `make soak` do when something comes in between.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::stage::until;

/// A checkout of some of our scripts; what they call is beside them.
struct Checkout(TempDir);

impl Checkout {
    fn of(scripts: &[&str]) -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for script in scripts {
            checkout.install(script, &fs::read_to_string(ours.join(script)).unwrap());
        }
        checkout
    }

    /// A script of `sh` in place of what is called by this name.
    fn with(self, script: &str, text: &str) -> Self {
        self.install(script, &format!("#!/bin/sh\n{text}\n"));
        self
    }

    /// By a process of its own: a program that any process has open for writing cannot be started.
    fn install(&self, script: &str, text: &str) {
        let mut install = Command::new("install");
        install.args(["-D", "-m", "755", "/dev/stdin"]).arg(self.path(script)).stdin(Stdio::piped());
        let mut install = install.spawn().unwrap();
        install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(install.wait().unwrap().success());
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Whoever runs these tests may run them by any of these scripts.
    fn command(&self, program: &str, words: &[&str]) -> Command {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT,TERM").arg(program).args(words).current_dir(self.0.path());
        for variable in
            ["TESTS", "SOAK", "BASE", "NOISE", "NOISE_SEED", "CARGO_TARGET_DIR", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"]
        {
            command.env_remove(variable);
        }
        command.env("PATH", path).env("KUN_CACHE", self.path("cache")).stdin(Stdio::null());
        command
    }
}

/// What it printed, line by line, and its exit code.
fn told(out: &Output) -> (Vec<String>, Option<i32>) {
    let text = [out.stdout.as_slice(), out.stderr.as_slice()].concat();
    (String::from_utf8(text).unwrap().lines().map(str::to_owned).collect(), out.status.code())
}

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

#[test]
fn a_quick_run_that_is_ended_alone_ends_what_compiles() {
    let checkout = Checkout::of(&["Makefile", "tests/quick.sh", "tests/signals.sh", "tests/lint/settings.sh"])
        .with("tests/cache.sh", "true")
        .with("bin/git", "[ \"$1\" != diff ] || printf 'a/lib.rs\\0'")
        .with("bin/cargo", "[ \"$1\" != test ] || { sleep 1000 & echo $! >begun; mv begun compiler; wait; }");
    fs::create_dir(checkout.path("a")).unwrap();
    fs::write(checkout.path("a/Cargo.toml"), "[package]\nname = \"a\"\n").unwrap();
    let mut quick = checkout.command("make", &["quick"]).stdout(Stdio::null()).spawn().unwrap();
    until("cargo compiles", || checkout.path("compiler").exists());
    kill_process(Pid::from_child(&quick), Signal::TERM).unwrap();
    assert!(!quick.wait().unwrap().success());
    until("the compiler has ended", || !is_alive(&fs::read_to_string(checkout.path("compiler")).unwrap()));
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
fn a_cache_that_cannot_be_copied_says_why_in_a_line() {
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
    let install = r#"while [ "$1" != --root ]; do shift; done; mkdir -p "$2/bin"; touch "$2/.crates.toml"
        printf '#!/bin/sh\necho checks "$@"\n' > "$2/bin/cargo-deny"; chmod 755 "$2/bin/cargo-deny""#;
    let checkout = Checkout::of(&["tests/deny.sh", "tests/partial.sh", "tests/places.sh"]).with("bin/cargo", install);
    let checks = "checks --log-level error check bans licenses sources".to_owned();
    let deny = || told(&checkout.command("tests/deny.sh", &[]).output().unwrap());
    let (lines, code) = deny();
    assert_eq!((lines.first(), code), (Some(&checks), Some(0)), "{lines:?}");
    // It is not built again.
    assert_eq!(deny(), (vec![checks], Some(0)));
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

fn is_alive(id: &str) -> bool {
    // Who has ended, and nobody has asked how, has no command line any more.
    fs::read(Path::new("/proc").join(id.trim()).join("cmdline")).is_ok_and(|words| !words.is_empty())
}
