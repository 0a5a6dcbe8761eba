//! Shell: whether the database file still is where it was opened. A file that is deleted or replaced while it is open
//! takes every commit, and all of them are gone with the process.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::store::StoreFault;

/// Which file was opened, and where.
#[derive(Debug, Clone)]
pub(super) struct Place {
    path: PathBuf,
    file: (u64, u64),
}

impl Place {
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: identity(path)? })
    }

    /// By its name: to open and to close the file once more would end SQLite's own locks on it.
    pub(super) fn check(&self) -> Result<(), StoreFault> {
        match identity(&self.path) {
            Ok(file) if file == self.file => Ok(()),
            Ok(_) | Err(_) => Err(StoreFault::Database {
                context: "its file was deleted, moved or replaced while it was in use, nothing can be stored: stop the \
                          service, put the file back or restore it, and start the service",
                source: self.path.display().to_string().into(),
            }),
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    path.metadata().map(|file| (file.dev(), file.ino()))
}
