//! Shell: values parsed from files that are read again when they change, so that no renewed or revoked secret needs a
//! restart.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use tracing::{error, info};

pub use crate::protected_file::{BadFile, read_protected};

/// Files of this process that cannot be used any more, with the consequence.
static UNUSABLE: Mutex<BTreeMap<Vec<PathBuf>, String>> = Mutex::new(BTreeMap::new());

/// Describes the files of this process that could not be read again, for the check `files`. Known once a file is used.
#[must_use]
pub fn unusable_files() -> Option<String> {
    let unusable = UNUSABLE.lock();
    (!unusable.is_empty()).then(|| unusable.values().cloned().collect::<Vec<_>>().join("; "))
}

/// Interval at which a used file is checked for changes.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Reaction to a file that can no longer be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnReadError {
    /// Keep the last good value, for files that are being renewed.
    KeepOld,
    /// Deny access by the value, for files whose entries may have been revoked.
    Deny,
}

/// Value parsed from files, reloaded when they change.
pub struct Reloaded<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, BadFile> + Send + Sync>,
    on_error: OnReadError,
    latest: Mutex<Latest<T>>,
}

struct Latest<T> {
    checked_at: Instant,
    stamps: Vec<Stamp>,
    /// Last good value.
    value: Arc<T>,
    last_error: Option<BadFile>,
}

/// Identity and permissions of a file; `None` for a missing file.
type Stamp = Option<(SystemTime, u64, u64, u32)>;

impl<T> Reloaded<T> {
    /// Reads `files` by `read`, and again after each change.
    ///
    /// # Errors
    /// When the files cannot be used.
    pub fn open(
        files: Vec<PathBuf>,
        on_error: OnReadError,
        read: impl Fn() -> Result<T, BadFile> + Send + Sync + 'static,
    ) -> Result<Self, BadFile> {
        // Taken before the files are read, so that a change in between is noticed by the next check.
        let stamps = stamps(&files);
        let value = Arc::new(read()?);
        let latest = Mutex::new(Latest { checked_at: Instant::now(), stamps, value, last_error: None });
        Ok(Self { files, read: Box::new(read), on_error, latest })
    }

    /// Returns the current value, at most a quarter of a second old; `None` while access by it is denied.
    pub fn current(&self) -> Option<Arc<T>> {
        let latest = self.latest();
        let is_denied = latest.last_error.is_some() && self.on_error == OnReadError::Deny;
        (!is_denied).then(|| latest.value.clone())
    }

    fn latest(&self) -> MutexGuard<'_, Latest<T>> {
        let mut latest = self.latest.lock();
        if latest.checked_at.elapsed() >= POLL_INTERVAL {
            self.reload_if_changed(&mut latest);
        }
        latest
    }

    fn reload_if_changed(&self, latest: &mut Latest<T>) {
        latest.checked_at = Instant::now();
        let stamps = stamps(&self.files);
        if stamps == latest.stamps && latest.last_error.is_none() {
            return;
        }
        latest.stamps = stamps;
        match (self.read)() {
            Ok(value) => {
                info!("reloaded: {}", self.names());
                (latest.value, latest.last_error) = (Arc::new(value), None);
                UNUSABLE.lock().remove(&self.files);
            }
            Err(bad) => {
                if latest.last_error.as_ref() != Some(&bad) {
                    let problem = format!("{bad}; {}", self.on_error.consequence());
                    error!("{problem}");
                    UNUSABLE.lock().insert(self.files.clone(), problem);
                }
                latest.last_error = Some(bad);
            }
        }
    }

    fn names(&self) -> String {
        self.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// Value of files that are being renewed: the last good one, shared by its clones.
pub struct Kept<T>(Arc<Reloaded<T>>);

impl<T> Kept<T> {
    /// Reads `files` by `read`, and again after each change. Without files the value never changes.
    ///
    /// # Errors
    /// When the files cannot be used.
    pub fn open(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, BadFile> + Send + Sync + 'static,
    ) -> Result<Self, BadFile> {
        Reloaded::open(files, OnReadError::KeepOld, read).map(|reloaded| Self(Arc::new(reloaded)))
    }

    /// Returns the current value, at most a quarter of a second old.
    #[must_use]
    pub fn current(&self) -> Arc<T> {
        self.0.latest().value.clone()
    }
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl OnReadError {
    const fn consequence(self) -> &'static str {
        match self {
            Self::KeepOld => "the last good value stays in use",
            Self::Deny => "access by it is denied until it can be read",
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let metadata = fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino(), metadata.mode()))
    };
    files.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    fn reloaded(file: &Path, on_error: OnReadError) -> Result<Reloaded<u32>, BadFile> {
        let named = file.to_owned();
        Reloaded::open(vec![file.to_owned()], on_error, move || {
            let text = read_protected("http.test", &named, 0o077, "it is a number")?;
            let bad = |error: std::num::ParseIntError| BadFile {
                setting: "http.test",
                file: named.clone(),
                why: error.to_string(),
            };
            text.trim().parse().map_err(bad)
        })
    }

    fn replace(file: &Path, text: &str) {
        let new = file.with_extension("new");
        fs::write(&new, text).expect("written");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("it is ours");
        fs::rename(new, file).expect("renamed");
    }

    /// Looks at once, however short ago the last reload_if_changed was.
    fn current_after_check(watched: &Reloaded<u32>) -> Option<u32> {
        watched.reload_if_changed(&mut watched.latest.lock());
        watched.current().map(|value| *value)
    }

    #[test]
    fn changed_file_is_reloaded_and_damaged_file_leaves_or_clears_value() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("number");
        assert!(reloaded(&file, OnReadError::Deny).is_err_and(|bad| bad.to_string().contains("http.test")));
        replace(&file, "1");
        let [old, cleared] = [OnReadError::KeepOld, OnReadError::Deny]
            .map(|on_error| reloaded(&file, on_error).expect("a number"));
        for (text, is_old, is_nothing) in [
            (Some("1"), Some(1), Some(1)),
            (Some("2"), Some(2), Some(2)),
            (Some("nonsense"), Some(2), None),
            (None, Some(2), None),
            (Some("3"), Some(3), Some(3)),
        ] {
            match text {
                Some(text) => replace(&file, text),
                None => fs::remove_file(&file).expect("it is there"),
            }
            assert_eq!(
                (current_after_check(&old), current_after_check(&cleared)),
                (is_old, is_nothing),
                "{text:?}"
            );
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
        let bad = read_protected("http.test", &file, 0o077, "").expect_err("others may read it");
        assert!(bad.why.contains("mode 640") && bad.why.contains("chmod 600"), "{bad}");
        assert_eq!(read_protected("http.test", &file, 0o022, "").expect("they may"), "3");
    }

    #[test]
    fn unreadable_file_is_retried_though_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("number");
        replace(&file, "1");
        let watched = reloaded(&file, OnReadError::Deny).expect("a number");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
        assert_eq!(current_after_check(&watched), None, "it was safe when it was opened");
        // Its time, length and inode are as before.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        assert_eq!(current_after_check(&watched), Some(1));
    }
}
