//! Shell: location of the database file. Commits to a file that was deleted or replaced while it is open are lost when the
//! process ends.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::store::StoreFault;

/// Path of a database file, and the identity of the file that was opened there.
#[derive(Debug, Clone)]
pub(super) struct DbLocation {
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl DbLocation {
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: identity(path)? })
    }

    /// Fails if another file, or none, is at the path. Asks by the path: opening and closing the file would end SQLite's locks
    /// on it.
    pub(super) fn check(&self) -> Result<(), StoreFault> {
        match identity(&self.path) {
            Ok(file) if file == self.file => Ok(()),
            Ok(_) | Err(_) => Err(StoreFault::Database {
                context: "its file was deleted, moved or replaced while it was in use, so that nothing can be stored: stop \
                          the service, put the file back or restore it, and start the service",
                source: self.path.display().to_string().into(),
            }),
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    path.metadata().map(|file| (file.dev(), file.ino()))
}
