//! The agent as the process of a pod, for the tests of this crate: `kun agent` without the rest of `kun`.

use std::process::ExitCode;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    // Each handshake has lines of its own, and a log on a disk that stands still holds up who writes it.
    let level = std::env::var("KUN_TEST_LOG").unwrap_or_else(|_| "debug,rustls=info".to_owned());
    tracing_subscriber::fmt().with_env_filter(level).with_writer(std::io::stderr).with_ansi(false).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    ExitCode::from(agent::main(&args, &|name| std::env::var(name).ok()).await)
}
