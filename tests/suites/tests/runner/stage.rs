//! A folder in which the runner finds suites that are shell scripts.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Waits for something that no event tells.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < hung::process(), "it hangs: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The suites are called as they are added; the folder goes with this value.
pub(crate) struct Stage {
    folder: TempDir,
    messages: Vec<String>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("tests")).unwrap();
        fs::write(folder.path().join("tests/budget.toml"), "").unwrap();
        Self { folder, messages: Vec::new() }
    }

    /// A suite that is this script.
    pub(crate) fn suite(mut self, name: &str, script: &str) -> Self {
        let program = self.path().join(name);
        write_program(&program, script);
        let message = serde_json::json!({
            "reason": "compiler-artifact", "package_id": format!("path+file:///w#{name}@0.1.0"),
            "manifest_path": self.path().join("Cargo.toml"), "target": {"kind": ["lib"], "name": name},
            "profile": {"test": true}, "executable": program,
        });
        self.messages.push(message.to_string());
        self
    }

    pub(crate) fn budget(self, text: &str) -> Self {
        fs::write(self.path().join("tests/budget.toml"), text).unwrap();
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The runner, as nobody's CI. It waits for no other run: this one may be a part of it.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let finished = r#"{"reason":"build-finished","success":true}"#;
        fs::write(self.path().join("build.json"), self.messages.join("\n") + "\n" + finished + "\n").unwrap();
        // What the caller ignores, as under nohup, would be ignored by the runner, too.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_suites"), "build.json", "phases"])
            .args(words)
            .current_dir(self.path())
            .env("KUN_ALONE", "127.0.0.1:0")
            .env_remove("CI")
            .stdin(Stdio::null());
        command
    }

    /// What it printed, and its exit code.
    pub(crate) fn run(&self, words: &[&str]) -> (String, Option<i32>) {
        let out = self.command(words).output().unwrap();
        (String::from_utf8(out.stdout).unwrap(), out.status.code())
    }
}

/// By a process of its own: a program cannot be started as long as any process has it open for writing, as one that another thread
/// starts at this moment would.
fn write_program(path: &PathBuf, script: &str) {
    let mut install =
        Command::new("install").args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped()).spawn().unwrap();
    let text = format!("#!/bin/sh\n{script}\n");
    install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(install.wait().unwrap().success());
}
