//! A checkout in which scripts of ours run, with something else in place of what they call.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// A checkout of some of our scripts; what they call is beside them.
pub(crate) struct Checkout(TempDir);

impl Checkout {
    pub(crate) fn of(scripts: &[&str]) -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for script in scripts {
            checkout.install(script, &fs::read_to_string(ours.join(script)).unwrap());
        }
        checkout
    }

    /// A script of `sh` in place of what is called by this name.
    pub(crate) fn with(self, script: &str, text: &str) -> Self {
        self.install(script, &format!("#!/bin/sh\n{text}\n"));
        self
    }

    /// By a process of its own: a program that any process has open for writing cannot be started.
    pub(crate) fn install(&self, script: &str, text: &str) {
        let mut install = Command::new("install");
        install.args(["-D", "-m", "755", "/dev/stdin"]).arg(self.path(script)).stdin(Stdio::piped());
        let mut install = install.spawn().unwrap();
        install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(install.wait().unwrap().success());
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Whoever runs these tests may run them by any of these scripts.
    pub(crate) fn command(&self, program: &str, words: &[&str]) -> Command {
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
pub(crate) fn told(out: &Output) -> (Vec<String>, Option<i32>) {
    let text = [out.stdout.as_slice(), out.stderr.as_slice()].concat();
    (String::from_utf8(text).unwrap().lines().map(str::to_owned).collect(), out.status.code())
}

pub(crate) fn is_alive(id: &str) -> bool {
    // Who has ended, and nobody has asked how, has no command line any more.
    fs::read(Path::new("/proc").join(id.trim()).join("cmdline")).is_ok_and(|words| !words.is_empty())
}
