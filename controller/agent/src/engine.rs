//! Whether the image holds the engine that was asked for. I/O around one line of text.
//!
//! Images of Valkey have its server under Redis' name, too, and an engine that is given the other's files may write them anew
//! in a format with no way back. So the server says what it is before it sees the data directory. It must not know versions.

use std::{future::pending, io, path::Path, process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};
use types::{agent::AgentPhase, engine::Engine};

use crate::shared::Shared;

/// How long the server may take to say its version; it takes milliseconds, unless the node is stalled.
const PATIENCE: Duration = Duration::from_secs(10);

/// The engine of a server's program, as it was asked for.
#[must_use]
pub fn of_program(program: &Path) -> Engine {
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.starts_with("valkey") { Engine::Valkey } else { Engine::Redis }
}

/// Returns if the image may hold the engine that was asked for; else it says why not, for as long as this pod lives.
pub async fn await_image(shared: &Shared) {
    let program = &shared.options.redis_server;
    let Some(why) = unusable(program, timeout(PATIENCE, ask(program)).await.ok()) else { return };
    tracing::error!(why, "nothing is started on this image");
    shared.enter(AgentPhase::Starting, Some(why));
    pending().await
}

/// The server's word on what it is.
async fn ask(program: &Path) -> io::Result<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).kill_on_drop(true).output().await?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Why nothing can be started; `None`: nothing is proven against it. Pure.
fn unusable(program: &Path, answer: Option<io::Result<String>>) -> Option<String> {
    let (shown, wanted) = (program.display(), of_program(program));
    match answer? {
        Ok(banner) => {
            let (found, version) = Engine::of_banner(&banner)?;
            let why = || format!("the image's {shown} is {found:?} {version}, and spec.engine is {wanted:?}");
            (found != wanted).then(why)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some(format!("the image has no {shown}, and spec.engine is {wanted:?}"))
        }
        // Starting it will tell.
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    const REDIS: &str = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0";
    const VALKEY: &str = "Valkey server v=8.1.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ad0f3ed608b40934";

    fn judged(program: &str, banner: &str) -> Option<String> {
        unusable(Path::new(program), Some(Ok(banner.to_owned())))
    }

    #[test]
    fn a_server_that_says_it_is_another_engine_is_not_started() {
        assert_eq!(judged("redis-server", REDIS), None);
        assert_eq!(judged("/usr/local/bin/valkey-server", VALKEY), None);
        let why = "the image's redis-server is Valkey 8.1.1, and spec.engine is Redis";
        assert_eq!(judged("redis-server", VALKEY).as_deref(), Some(why));
        let why = "the image's valkey-server is Redis 7.0.15, and spec.engine is Valkey";
        assert_eq!(judged("valkey-server", REDIS).as_deref(), Some(why));
    }

    #[test]
    fn an_image_without_the_server_is_named_and_what_is_not_legible_proves_nothing() {
        let gone = unusable(Path::new("valkey-server"), Some(Err(io::ErrorKind::NotFound.into())));
        assert_eq!(gone.as_deref(), Some("the image has no valkey-server, and spec.engine is Valkey"));
        for banner in ["", "v=7.0.15", "Redis", "Redis server", "KeyDB server v=6.3.4"] {
            assert_eq!(judged("redis-server", banner), None, "{banner:?}");
        }
        assert_eq!(unusable(Path::new("redis-server"), None), None, "it did not answer in time");
        assert_eq!(unusable(Path::new("redis-server"), Some(Err(io::ErrorKind::OutOfMemory.into()))), None);
    }
}
