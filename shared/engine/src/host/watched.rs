//! Shell: files that are read again when they change, so that who renews or revokes something restarts nobody.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tracing::{error, info};

/// How often it is looked whether a file has changed, while somebody asks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A file that is named by a setting, and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {}: {why}", file.display())]
pub struct BadFile {
    /// The setting.
    pub setting: &'static str,
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it, and what to do.
    pub why: String,
}

/// What is held once a file that could be read no longer can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damaged {
    /// What it held before: somebody who renews it is not done yet, and nobody is to notice.
    HoldsTheOld,
    /// Nothing: what it held may have been taken back.
    HoldsNothing,
}

/// What some files hold, as they are now.
pub struct Watched<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, BadFile> + Send + Sync>,
    damaged: Damaged,
    known: Mutex<Known<T>>,
}

struct Known<T> {
    looked_at: Instant,
    stamps: Vec<Stamp>,
    value: Option<Arc<T>>,
    complaint: Option<BadFile>,
}

/// What tells a file from the one that was there before, and whether others may do more with it; `None` when there is
/// none.
type Stamp = Option<(SystemTime, u64, u64, u32)>;

impl<T> Watched<T> {
    /// Reads `files`, by `read`.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn open(
        files: Vec<PathBuf>,
        damaged: Damaged,
        read: impl Fn() -> Result<T, BadFile> + Send + Sync + 'static,
    ) -> Result<Self, BadFile> {
        // Before they are read: what changes meanwhile is noticed at the next look.
        let stamps = stamps(&files);
        let value = Some(Arc::new(read()?));
        let known = Mutex::new(Known { looked_at: Instant::now(), stamps, value, complaint: None });
        Ok(Self { files, read: Box::new(read), damaged, known })
    }

    /// What they hold now, or did a quarter of a second ago; `None` when that can no longer be told.
    pub fn now(&self) -> Option<Arc<T>> {
        let mut known = self.known.lock();
        if known.looked_at.elapsed() >= LOOK_EVERY {
            self.look(&mut known);
        }
        known.value.clone()
    }

    fn look(&self, known: &mut Known<T>) {
        known.looked_at = Instant::now();
        let stamps = stamps(&self.files);
        if stamps == known.stamps && known.complaint.is_none() {
            return;
        }
        known.stamps = stamps;
        match (self.read)() {
            Ok(value) => {
                info!("read again, as it has changed: {}", self.names());
                (known.value, known.complaint) = (Some(Arc::new(value)), None);
            }
            Err(bad) => {
                if known.complaint.as_ref() != Some(&bad) {
                    error!("{bad}; {}", self.damaged.in_words());
                }
                known.complaint = Some(bad);
                match self.damaged {
                    Damaged::HoldsTheOld => {}
                    Damaged::HoldsNothing => known.value = None,
                }
            }
        }
    }

    fn names(&self) -> String {
        self.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

impl Damaged {
    const fn in_words(self) -> &'static str {
        match self {
            Self::HoldsTheOld => "what it held before is used on",
            Self::HoldsNothing => "nobody is let in by it until it can be read",
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let about = fs::metadata(file).ok()?;
        Some((about.modified().ok()?, about.len(), about.ino(), about.mode()))
    };
    files.iter().map(stamp).collect()
}

/// Reads a file that is named by `setting`, and with whose permissions others may do none of `forbidden` (bits of its
/// mode). Where there is none, `missing` says what belongs there, and how one is made.
///
/// # Errors
/// When it cannot be read, or others may do that.
pub fn read_guarded(
    setting: &'static str,
    file: &Path,
    forbidden: u32,
    missing: &str,
) -> Result<String, BadFile> {
    let bad = |why: String| BadFile { setting, file: file.to_owned(), why };
    let read = || -> io::Result<(u32, String)> {
        Ok((fs::metadata(file)?.permissions().mode(), fs::read_to_string(file)?))
    };
    let (mode, text) = read().map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        bad(if is_missing { format!("is not there: {missing}") } else { error.to_string() })
    })?;
    if mode & forbidden != 0 {
        let may = if forbidden & 0o444 == 0 { "written" } else { "read or written" };
        return Err(bad(format!(
            "it can be {may} by others (mode {:o}): chmod 600 it, and ask who knows what it holds",
            mode & 0o777
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(file: &Path, damaged: Damaged) -> Result<Watched<u32>, BadFile> {
        let named = file.to_owned();
        Watched::open(vec![file.to_owned()], damaged, move || {
            let text = read_guarded("http.test", &named, 0o077, "it is a number")?;
            let bad = |error: std::num::ParseIntError| BadFile {
                setting: "http.test",
                file: named.clone(),
                why: error.to_string(),
            };
            text.trim().parse().map_err(bad)
        })
    }

    fn put(file: &Path, text: &str) {
        let new = file.with_extension("new");
        fs::write(&new, text).expect("written");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("it is ours");
        fs::rename(new, file).expect("renamed");
    }

    /// Looks at once, however short ago the last look was.
    fn at_once(watched: &Watched<u32>) -> Option<u32> {
        watched.look(&mut watched.known.lock());
        watched.now().map(|value| *value)
    }

    #[test]
    fn a_file_that_changes_is_read_again_and_a_damaged_one_holds_what_it_is_to_hold() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("number");
        assert!(
            watched(&file, Damaged::HoldsNothing).is_err_and(|bad| bad.to_string().contains("http.test"))
        );
        put(&file, "1");
        let [old, nothing] = [Damaged::HoldsTheOld, Damaged::HoldsNothing]
            .map(|damaged| watched(&file, damaged).expect("a number"));
        for (text, is_old, is_nothing) in [
            (Some("1"), Some(1), Some(1)),
            (Some("2"), Some(2), Some(2)),
            (Some("nonsense"), Some(2), None),
            (None, Some(2), None),
            (Some("3"), Some(3), Some(3)),
        ] {
            match text {
                Some(text) => put(&file, text),
                None => fs::remove_file(&file).expect("it is there"),
            }
            assert_eq!((at_once(&old), at_once(&nothing)), (is_old, is_nothing), "{text:?}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
        let bad = read_guarded("http.test", &file, 0o077, "").expect_err("others may read it");
        assert!(bad.why.contains("mode 640") && bad.why.contains("chmod 600"), "{bad}");
        assert_eq!(read_guarded("http.test", &file, 0o022, "").expect("they may"), "3");
    }

    #[test]
    fn what_could_not_be_read_is_tried_again_though_the_file_is_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("number");
        put(&file, "1");
        let watched = watched(&file, Damaged::HoldsNothing).expect("a number");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
        assert_eq!(at_once(&watched), None, "it was safe when it was opened");
        // Its time, length and place are as before.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        assert_eq!(at_once(&watched), Some(1));
    }
}
