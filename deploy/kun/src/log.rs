//! Where log lines go: standard error, as text for a person or JSON for a machine; audit lines to a file of their own.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Mutex;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, filter};

/// How lines look on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// For a person.
    Text,
    /// One JSON object per line.
    Json,
}

/// An error and what caused it, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// How much is said.
fn level(verbosity: u8) -> &'static str {
    match verbosity {
        // The client library tells of what we handle, and tell of ourselves (a watch that ended, a conflict that is retried, a 503).
        0 => "info,kube_runtime=error,kube_client=off",
        1 => "debug,hyper=info,rustls=info,h2=info,tower=info,kube_runtime=info,kube_client=info",
        2.. => "trace,h2=debug",
    }
}

/// For whoever serves the API: standard error, and the audit trail in `audit`.
///
/// # Errors
/// When the audit file cannot be opened.
pub fn of_standalone(form: Form, verbosity: u8, audit: &Path) -> std::io::Result<()> {
    let file = private(audit)?;
    let trail = tracing_subscriber::fmt::layer()
        .event_format(MessageOnly)
        .with_writer(Mutex::new(file))
        .with_filter(filter::filter_fn(|metadata| metadata.target() == apiserver::filter::audit::TARGET));
    let filter = || EnvFilter::new(format!("{},{}=off", level(verbosity), apiserver::filter::audit::TARGET));
    let (text, json) = match form {
        Form::Text => (
            Some(
                tracing_subscriber::fmt::layer()
                    .with_target(false)
                    .with_ansi(std::io::stderr().is_terminal())
                    .with_writer(std::io::stderr)
                    .with_filter(filter()),
            ),
            None,
        ),
        Form::Json => {
            (None, Some(tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr).with_filter(filter())))
        }
    };
    tracing_subscriber::registry().with(trail).with(text).with(json).init();
    Ok(())
}

/// For a pod's process: its log is a file that others read.
pub fn of_a_pod() {
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_target(false).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(layer.with_filter(EnvFilter::new("info"))).init();
}

fn private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// An audit line is JSON already: nothing is added to it.
struct MessageOnly;

impl<S, N> FormatEvent<S, N> for MessageOnly
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
