//! The way out for backups of a running store: a socket in the data directory, for the server's own user.
//!
//! Who connects is sent a backup as of that moment and nothing else; nothing is read. The file is locked by the server, so
//! there is no other way to an honest copy while it runs.

use std::io::{self, BufWriter};
use std::os::unix::net::UnixStream as Stream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use store::Embedded;
use tokio::net::{UnixListener, UnixStream};

use super::{Running, spawn};

/// The folder of the socket in the data directory, closed to others.
const FOLDER: &str = "run";
/// The socket's name in it.
const NAME: &str = "store.sock";
/// How long who takes a backup may stand still. Meanwhile the store keeps all that it has replaced since.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// Where the socket is.
pub(crate) fn path(data: &Path) -> PathBuf {
    data.join(FOLDER).join(NAME)
}

/// Opens the hatch. The caller holds the data directory's lock, so that a socket that is there is a leftover.
pub(crate) fn open(data: &Path, store: Arc<Embedded>) -> io::Result<Running> {
    let folder = data.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    super::private(&folder)?;
    let path = path(data);
    match std::fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(&path)?;
    Ok(spawn("the socket for backups", |stop| async move {
        tokio::select! {
            () = serve(&listener, store) => {}
            () = stop.cancelled() => {}
        }
        let _ = std::fs::remove_file(&path);
    }))
}

/// One backup at a time.
async fn serve(listener: &UnixListener, store: Arc<Embedded>) {
    loop {
        let sent = match listener.accept().await {
            Ok((stream, _)) => send(stream, Arc::clone(&store)).await,
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = sent {
            tracing::warn!(error, "a backup was not taken");
            // Whatever it was, it may be so again at once.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn send(stream: UnixStream, store: Arc<Embedded>) -> Result<(), String> {
    let who = stream.peer_cred().map_err(|error| error.to_string())?.uid();
    if who != rustix::process::geteuid().as_raw() && who != 0 {
        return Err(format!("the user {who} is not ours"));
    }
    let stream = blocking(stream).map_err(|error| error.to_string())?;
    // A cut backup lacks its checksum, so who takes it notices whatever happens here.
    let sent = tokio::task::spawn_blocking(move || store.backup(BufWriter::new(stream))).await;
    let summary = sent.map_err(|error| error.to_string())?.map_err(|error| crate::log::chain(&error))?;
    tracing::info!(revision = %summary.revision, objects = summary.objects, "a backup was taken");
    Ok(())
}

fn blocking(stream: UnixStream) -> io::Result<Stream> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(STALL_LIMIT))?;
    Ok(stream)
}
