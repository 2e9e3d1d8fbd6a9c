//! The real servers that `tests/cluster` builds once, for the tests that need them; and what happens where they cannot be built.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

/// What a script of `tests/cluster` prints where there is no Go and nothing was built before.
const MISSING: &str = "missing: ";
/// Lines of a log that a failure shows.
const TAIL: usize = 25;

/// Runs a script of `tests/cluster` that prints the path of what it built. `None`: there is no Go, and the test is skipped
/// with a line that says so, past the harness, which shows nothing of a test that ends well. In CI that is an error, because nobody
/// reads the line.
pub fn built(script: &str, test: &str) -> Result<Option<PathBuf>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster").join(script);
    let output =
        Command::new(&path).stdin(Stdio::null()).output().with_context(|| format!("run {}", path.display()))?;
    let (printed, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        return Ok(Some(PathBuf::from(printed.trim())));
    }
    let Some(missing) = told.lines().find(|line| line.starts_with(MISSING)) else {
        bail!("{script} failed: {told}");
    };
    if hung::in_ci() {
        bail!("it may not be skipped in CI; {missing}");
    }
    writeln!(io::stdout(), "{test}: SKIPPED; {missing}")?;
    Ok(None)
}

/// The last lines of a program's log.
#[must_use]
pub fn log_tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default().join("\n")
}

/// The one test of a program without a harness, whose last lines are to be seen in every run: runs it if the arguments ask
/// for it, and tells how it ended.
#[expect(clippy::print_stdout, reason = "a test without a harness tells its outcome itself")]
pub async fn alone(test: &str, run: impl Future<Output = Result<()>>) -> ExitCode {
    if !is_wanted(test, std::env::args().skip(1)) {
        return ExitCode::SUCCESS;
    }
    let begin = Instant::now();
    match run.await {
        Ok(()) => {
            println!("{test}: test {test} ... ok ({:.1} s)", begin.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{test}: test {test} ... FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the arguments of a test program without a harness ask for this one test: none, or a part of its name.
#[must_use]
fn is_wanted(test: &str, arguments: impl Iterator<Item = String>) -> bool {
    let (flags, filters): (Vec<String>, Vec<String>) = arguments.partition(|argument| argument.starts_with('-'));
    !flags.iter().any(|flag| flag == "--list" || flag == "--ignored")
        && (filters.is_empty() || filters.iter().any(|filter| test.contains(filter.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_without_a_harness_runs_when_it_is_meant() {
        let wanted = |arguments: &[&str]| is_wanted("one_two", arguments.iter().map(|text| (*text).to_owned()));
        assert!(wanted(&[]) && wanted(&["two"]) && wanted(&["--nocapture", "x", "one"]));
        assert!(!wanted(&["three"]) && !wanted(&["--list"]) && !wanted(&["--ignored"]));
    }
}
