//! Shell: location of the database file. Commits to a file that was deleted or replaced while it is open are lost when the
//! process ends.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::store::StoreFault;
use crate::store::backend::DiskUse;

/// Path of a database file, and the identity of the file that was opened there.
#[derive(Debug, Clone)]
pub(super) struct DbLocation {
    path: PathBuf,
    /// Absolute path without symbolic links, as the system names the open file.
    resolved: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl DbLocation {
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        Ok(Self { path: path.to_owned(), resolved: path.canonicalize()?, file: identity(path)? })
    }

    /// Fails if another file, or none, is at the path. Asks by the path: opening and closing the file would end SQLite's locks
    /// on it.
    pub(super) fn check(&self) -> Result<(), StoreFault> {
        match identity(&self.path) {
            Ok(file) if file == self.file => Ok(()),
            Ok(_) | Err(_) => Err(StoreFault::Database {
                context: "its file was deleted, moved or replaced while it was in use, so that nothing can be stored. Before \
                          the service is stopped, copy the file: the process may hold the last copy. Then stop the service, \
                          put the copy in its place, and start the service",
                source: self.rescue().into(),
            }),
        }
    }

    /// Free space of the file system, and size of the log.
    pub(super) fn disk_use(&self) -> DiskUse {
        let folder = self.resolved.parent().unwrap_or(&self.resolved);
        let free = nix::sys::statvfs::statvfs(folder).ok();
        let free = free.map(|disk| disk.blocks_available().saturating_mul(disk.fragment_size()));
        let log = PathBuf::from(format!("{}-wal", self.resolved.display())).metadata().ok();
        DiskUse { free, log: log.map(|log| log.len()) }
    }

    /// Names the file, with the commands that copy it from this process if it was deleted.
    fn rescue(&self) -> String {
        let shown = self.path.display().to_string();
        // The log too: it has the last commits.
        let copies = [("", "saved"), ("-wal", "saved-wal")].map(|(suffix, to)| {
            let descriptor = open_descriptor(&format!("{}{suffix} (deleted)", self.resolved.display()))?;
            Some(format!("cp /proc/{}/fd/{descriptor} '{shown}.{to}'", std::process::id()))
        });
        let copies: Vec<String> = copies.into_iter().flatten().collect();
        if copies.is_empty() { shown } else { format!("{shown} (to copy it: {})", copies.join(" && ")) }
    }
}

/// Descriptor of this process that is open on a file of this name. Reads names only: it opens no file.
fn open_descriptor(name: &str) -> Option<String> {
    let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
    let is_of =
        |entry: &std::fs::DirEntry| std::fs::read_link(entry.path()).is_ok_and(|to| to == Path::new(name));
    let found = descriptors.filter(is_of).map(|entry| entry.file_name().to_string_lossy().into_owned());
    found.min()
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    path.metadata().map(|file| (file.dev(), file.ino()))
}
