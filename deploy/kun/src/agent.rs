//! `kun agent [backup … | erase … | folder …]`: PID 1 of a Redis pod, and the workers that store a backup and delete its artifacts.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use crate::log;

/// Name of the subcommand.
pub const SUBCOMMAND: &str = "agent";
/// Exit code when the agent could not even begin.
const CANNOT_BEGIN: u8 = 1;

/// How long what still writes to the volume has at the end.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// Runs the agent to its end.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    log::of_a_pod();
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    // One pod is one Redis: a single thread keeps the agent small and leaves the processor to Redis.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(agent::main(&args, &|name| std::env::var(name).ok()));
            // A call on a volume that does not answer may never return.
            runtime.shutdown_timeout(LAST_CALLS);
            ExitCode::from(code)
        }
        Err(error) => {
            tracing::error!(%error, "the agent cannot start its runtime");
            ExitCode::from(CANNOT_BEGIN)
        }
    }
}
