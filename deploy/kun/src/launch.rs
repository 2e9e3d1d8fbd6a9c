//! `kun launch PROGRAM ARGS…`: the first moments of a pod's process, run by the node and by no person.
//!
//! It makes a session of its own (a Ctrl-C at the terminal or the node's end does not reach it), then waits for the
//! word on its standard input and only then becomes the program. The node gives the word after it has recorded this
//! process; if the node dies before, the input ends and so does this process. So there is never a process that the
//! node does not know.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

/// Name of the subcommand.
pub const SUBCOMMAND: &str = "launch";
/// What the node writes when the process is recorded.
pub const WORD: &[u8] = b"go\n";
/// Exit code when the node ended before giving the word.
const NEVER_TOLD: u8 = 125;
/// Exit code when the program cannot be run, as shells have it.
const CANNOT_RUN: u8 = 126;

/// Becomes the program. Returns only if that fails.
pub fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = args.next() else { return fail(CANNOT_RUN, "no program given") };
    if let Err(error) = rustix::process::setsid() {
        return fail(CANNOT_RUN, &format!("making a session: {error}"));
    }
    let mut word = [0; WORD.len()];
    if std::io::stdin().read_exact(&mut word).is_err() || word != WORD {
        return ExitCode::from(NEVER_TOLD);
    }
    let error = Command::new(&program).args(args).stdin(Stdio::null()).exec();
    fail(CANNOT_RUN, &format!("running {}: {error}", program.display()))
}

fn fail(code: u8, message: &str) -> ExitCode {
    // The pod's log is the only place left to say it.
    let _ = writeln!(std::io::stderr(), "kun launch: {message}");
    ExitCode::from(code)
}
