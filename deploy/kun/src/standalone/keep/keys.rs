//! The keys of what is kept: a file that is followed. A new file that cannot be used changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apiserver::configuration::{self, Error};
use apiserver::encryption;
use aws_lc_rs::digest::{SHA256, digest};
use store::seal::Keyring;
use store::{Sealed, Seals};

use super::super::{Running, spawn};
use super::Opened;

/// How often the file is looked at. A rotation waits for it on every server.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The file, and what it was when it was last looked at: a digest, so that no secret is kept for comparing.
pub(super) struct File {
    path: PathBuf,
    seen: Option<Vec<u8>>,
}

impl File {
    /// Reads the file for the first time.
    pub(super) fn read(path: &Path) -> Result<(File, Keyring), Error> {
        let mut file = File { path: path.to_owned(), seen: None };
        // Nothing was seen before, so there is a keyring or an error.
        let keyring = file.look()?.unwrap_or_default();
        Ok((file, keyring))
    }

    /// The keyring, if the file is not what it was. What is wrong with it is told once.
    fn look(&mut self) -> Result<Option<Keyring>, Error> {
        let text = match configuration::text(&self.path) {
            Ok(text) => text,
            Err(error) => return if self.seen.replace(Vec::new()) == Some(Vec::new()) { Ok(None) } else { Err(error) },
        };
        let now = digest(&SHA256, text.as_bytes()).as_ref().to_vec();
        if self.seen.as_ref() == Some(&now) {
            return Ok(None);
        }
        self.seen = Some(now);
        let keyring = encryption::parse(&text);
        keyring.map(Some).map_err(|fault| Error::Fault { path: self.path.clone(), fault })
    }

    /// Looks at the file, for as long as the process lives.
    async fn follow(mut self, seals: Arc<Seals>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.take(&seals);
        }
    }

    fn take(&mut self, seals: &Seals) {
        match self.look() {
            Ok(None) => {}
            Ok(Some(keyring)) => {
                seals.exchange(keyring);
                tracing::info!(file = %self.path.display(), "the keys of stored objects changed and are in use now");
            }
            Err(error) => tracing::error!(
                error = crate::log::chain(&error),
                "the keys of stored objects changed and cannot be used: the old ones stay in use"
            ),
        }
    }
}

/// The store behind its seals, and who follows the file.
pub(super) fn seal(opened: Opened, file: File, keyring: Keyring, prefix: &str) -> Opened {
    let Opened { store, mut parts } = opened;
    let seals = Seals::new(keyring, prefix);
    let follow = file.follow(Arc::clone(&seals));
    parts.push(following(follow));
    Opened { store: Arc::new(Sealed::new(store, seals)), parts }
}

fn following(follow: impl Future<Output = ()> + Send + 'static) -> Running {
    spawn("the keys of stored objects", |stop| async move {
        tokio::select! {
            () = follow => {}
            () = stop.cancelled() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use store::Key;
    use store::seal::Opened;

    use super::*;

    fn write(path: &Path, keys: &str) {
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
        let rule = format!("- resources: [secrets]\n  providers: [{{secretbox: {{keys: [{keys}]}}}}]\n");
        std::fs::write(path, format!("{text}{rule}")).unwrap();
    }

    #[test]
    fn a_changed_file_is_taken_and_a_broken_one_changes_nothing_and_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.yaml");
        let (a, b) = (
            "{name: a, secret: YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=}",
            "{name: b, secret: YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=}",
        );
        write(&path, a);
        let (mut file, keyring) = File::read(&path).unwrap();
        let place = b"/registry/secrets/shop/token";
        let sealed = keyring.seal("secrets", place, "{}".into()).unwrap();
        let seals = Seals::new(keyring, "/registry");
        let key = Key::new("secrets", Some("shop"), "token").unwrap();
        let opened = |is_stale| Ok(Opened { value: "{}".into(), is_stale });
        file.take(&seals);
        assert_eq!(seals.open(&key, &sealed), opened(false));
        write(&path, "{name: a, secret: short}");
        assert!(file.look().unwrap_err().to_string().contains("keys[0].secret: "));
        file.take(&seals);
        assert_eq!(seals.open(&key, &sealed), opened(false));
        std::fs::remove_file(&path).unwrap();
        assert!(file.look().is_err());
        assert!(file.look().unwrap().is_none(), "told once");
        write(&path, &format!("{b}, {a}"));
        file.take(&seals);
        assert_eq!(seals.open(&key, &sealed), opened(true));
    }

    #[test]
    fn a_file_that_cannot_be_used_at_start_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.yaml");
        assert!(File::read(&path).is_err());
        let absent = File::read(Path::new("/no/such/file")).map(drop).unwrap_err();
        assert_eq!(absent.to_string(), "reading /no/such/file");
        write(&path, "");
        let told = File::read(&path).map(drop).unwrap_err().to_string();
        assert_eq!(
            told,
            format!("{}: resources[0].providers[0].secretbox.keys: at least one is required", path.display())
        );
    }
}
