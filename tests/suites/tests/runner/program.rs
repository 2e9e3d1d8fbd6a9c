//! The program as `tests/run.sh` calls it.

use std::{
    fs,
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use super::stage::{Stage, until};

#[test]
fn who_calls_it_wrongly_is_told_how() {
    let out = Command::new(env!("CARGO_BIN_EXE_suites")).output().unwrap();
    let told = String::from_utf8_lossy(&out.stdout);
    assert_eq!(told, "suites: usage: suites BUILD PHASES [WORD...]: BUILD\n");
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn words_that_match_no_suite_are_an_error_that_lists_the_suites() {
    let stage = Stage::new().suite("one", "echo 'test a ... ok'").suite("two", "echo 'test b ... ok'");
    let error = |words: &str| (format!("suites: no suite has {words} in its name; there are: one, two\n"), Some(1));
    assert_eq!(stage.run(&["nosuch"]), error("\"nosuch\""));
    assert_eq!(stage.run(&["one", "neither", "nor"]), error("\"neither\" or \"nor\""));
    let (told, code) = stage.run(&["on"]);
    assert_eq!((told.lines().last(), code), (Some("1 passed, 0 failed"), Some(0)), "{told}");
}

#[test]
fn a_suite_that_ends_badly_has_its_reason_among_the_last_lines() {
    let stage = Stage::new()
        .suite("code", "echo 'test a ... ok'; echo 'Error: no disk'; exit 3")
        .suite("half", "echo 'running 2 tests'; echo 'test a ... ok'")
        .suite("signal", "echo 'test a ... FAILED: no answer'; kill -SEGV $$")
        .suite("silent", "true")
        .suite("well", "echo 'test a ... ok'");
    let (told, code) = stage.run(&[]);
    let last: Vec<&str> = told.lines().skip_while(|line| *line != "the slowest tests").collect();
    let mut reasons: Vec<&str> = last.iter().copied().filter(|line| line.starts_with("FAILED: ")).collect();
    reasons.sort_unstable();
    let expected = [
        "FAILED: code: it ended with exit status: 3 though no test failed, after 1 tests; it said: Error: no disk",
        "FAILED: half: it ended with exit status: 0, after 1 of 2 tests",
        "FAILED: signal a: no answer",
        "FAILED: signal: it ended with signal: 11 (SIGSEGV), after 1 tests",
        "FAILED: silent: it ended with exit status: 0 and told no result; it printed nothing",
    ];
    assert_eq!((reasons.as_slice(), code), (expected.as_slice(), Some(1)), "{told}");
    assert!(told.ends_with("\n\n3 passed, 5 failed\n"), "{told}");
}

#[test]
fn what_was_skipped_is_counted_in_the_last_line() {
    let stage = Stage::new()
        .suite("one", "echo 'test a ... ok'; echo 'test b ... ignored'")
        .suite("two", "echo 'two: SKIPPED; missing: Go'");
    let (told, code) = stage.run(&[]);
    assert!(told.ends_with("\n\n1 passed, 0 failed, 2 skipped\n"), "{told}");
    assert_eq!(code, Some(0));
}

#[test]
fn what_the_tests_said_is_not_lost_to_an_error_of_the_report() {
    let stage = Stage::new().suite("one", "mkdir target/test/times.json; touch ran");
    fs::write(stage.path().join("phases"), "build\n").unwrap();
    assert_eq!(stage.run(&[]), ("suites: a phase is `name seconds`\n".to_owned(), Some(1)));
    assert!(!stage.path().join("ran").exists());
    fs::write(stage.path().join("phases"), "build 1.5\n").unwrap();
    let (told, code) = stage.run(&[]);
    assert!(told.contains("\ntarget/test/times.json: ") && told.ends_with("\n\n0 passed, 1 failed\n"), "{told}");
    assert_eq!(code, Some(1));
}

#[test]
fn a_run_without_a_test_does_not_pass() {
    let stage = Stage::new().suite("one", "echo 'running 0 tests'; echo 'test result: ok. 0 passed; 0 failed'");
    let (told, code) = stage.run(&[]);
    assert!(told.ends_with("\n\nthere was no test to run\n\n0 passed, 0 failed\n"), "{told}");
    assert_eq!(code, Some(1));
}

#[test]
fn a_run_whose_report_nobody_reads_ends_like_any_other() {
    let stage = Stage::new().suite("one", "echo 'test a ... ok'").suite("two", "echo 'test b ... ok'; touch ran");
    let mut runner = stage.command(&[]).stdout(Stdio::piped()).spawn().unwrap();
    drop(runner.stdout.take());
    assert_eq!(runner.wait().unwrap().code(), Some(0));
    assert!(stage.path().join("ran").exists());
}

/// As in two networks, where none holds an address that the other one wants.
#[test]
fn two_runs_of_one_checkout_write_their_logs_one_after_the_other() {
    let stage = Stage::new()
        .suite("one", "echo $$ >>begun; while [ ! -e go ]; do sleep 0.1; done; echo 'test a ... ok'")
        .budget("[one]\nseconds = 1\nwaits = true\n");
    let mut first = stage.command(&[]).stdout(Stdio::null()).spawn().unwrap();
    let begun = || fs::read_to_string(stage.path().join("begun")).unwrap_or_default().lines().count();
    until("the first runs", || begun() == 1);
    let told = stage.path().join("told");
    let mut second = stage.command(&[]).stdout(fs::File::create(&told).unwrap()).spawn().unwrap();
    let waits = "another `make test` runs in this checkout: this one waits until it has ended\n";
    until("the second waits", || fs::read_to_string(&told).unwrap() == waits || begun() > 1);
    let at_once = begun();
    fs::write(stage.path().join("go"), "").unwrap();
    assert_eq!([first.wait().unwrap().code(), second.wait().unwrap().code()], [Some(0); 2]);
    assert_eq!((at_once, begun()), (1, 2));
}

/// Two suites, one of which heeds no gentle word; each has a process in a session of its own.
#[test]
fn an_interrupted_run_ends_what_it_started_and_says_so() {
    let begun = "echo 'test a ... ok'; setsid sleep 1000 & echo $! >>ids; echo $$ >>ids";
    let stage = Stage::new()
        .suite("deaf", &format!("trap '' TERM; {begun}; while :; do sleep 1; done"))
        .suite("left", &format!("{begun}; exec sleep 1000"))
        .budget("[deaf]\nseconds = 1\nwaits = true\n[left]\nseconds = 1\nwaits = true\n");
    for (signal, name, code) in
        [(Signal::TERM, "SIGTERM", 143), (Signal::INT, "SIGINT", 130), (Signal::HUP, "SIGHUP", 129)]
    {
        let ids = stage.path().join("ids");
        fs::remove_file(&ids).ok();
        let mut runner = stage.command(&[]).stdout(Stdio::piped()).spawn().unwrap();
        let read = || fs::read_to_string(&ids).unwrap_or_default();
        until("both suites run", || read().lines().count() == 4);
        kill_process(Pid::from_child(&runner), signal).unwrap();
        let mut told = String::new();
        runner.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        assert_eq!(runner.wait().unwrap().code(), Some(code), "{told}");
        let read = read();
        assert_eq!(read.lines().filter(|id| is_alive(id)).collect::<Vec<_>>(), Vec::<&str>::new(), "{told}");
        let last =
            format!("\n\ninterrupted by {name}; still running: left, deaf; not begun: none\n\n2 passed, 2 failed\n");
        let swapped = last.replace("left, deaf", "deaf, left");
        assert!(told.ends_with(&last) || told.ends_with(&swapped), "{told}");
        assert!(told.contains(&format!("\nFAILED: deaf: interrupted by {name} after ")), "{told}");
    }
}

/// A killed runner ends nothing. Its place is this test's own: the runners of other tests beside it would end what it leaves.
#[test]
fn what_a_killed_run_left_is_ended_by_the_next_and_writes_into_no_log_of_it() {
    // As redis-server and an agent are: in a group of their own, with an environment that does not say whose they are.
    let begun = "setsid sleep 1000 & echo $! >>ids; setsid env -i sleep 1000 & echo $! >>ids; echo $$ >>ids";
    let stage = Stage::new()
        .suite("left", &format!("{begun}; exec sleep 1000"))
        .suite("well", "echo 'test a ... ok'")
        .budget("[left]\nseconds = 1\nwaits = true\n");
    let place = "127.83.255.253:0";
    let log = stage.path().join("target/test/left.log");
    fs::create_dir_all(log.parent().unwrap()).unwrap();
    fs::write(&log, "old").unwrap();
    fs::hard_link(&log, stage.path().join("old")).unwrap();
    let mut runner = stage.command(&["left"]).env("KUN_ALONE", place).stdout(Stdio::null()).spawn().unwrap();
    let read = || fs::read_to_string(stage.path().join("ids")).unwrap_or_default();
    until("the suite runs", || read().lines().count() == 3);
    assert_eq!(fs::read_to_string(stage.path().join("old")).unwrap(), "old");
    runner.kill().unwrap();
    runner.wait().unwrap();
    let ids = read();
    assert_eq!(ids.lines().filter(|id| is_alive(id)).count(), 3);
    let out = stage.command(&["well"]).env("KUN_ALONE", place).output().unwrap();
    let told = String::from_utf8(out.stdout).unwrap();
    assert_eq!(told.lines().next(), Some("a run before this one was killed: 3 processes that it left are ended"));
    assert_eq!(ids.lines().filter(|id| is_alive(id)).count(), 0, "{told}");
    assert!(told.ends_with("\n\n1 passed, 0 failed\n"), "{told}");
    let out = stage.command(&["well"]).env("KUN_ALONE", place).output().unwrap();
    assert!(!String::from_utf8(out.stdout).unwrap().contains("a run before"), "nothing is left");
}

fn is_alive(id: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(id).join("stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}
