//! Shell: the data folder of a local system: its ownership check, its lock, and files that are replaced atomically.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// Folder of the system unless another is named.
pub const DEFAULT_DATA_DIR: &str = ".saga";
/// File with the plan.
pub const PLAN_FILE: &str = "system.json";
/// Locked by a process that starts or stops others. It marks the folder as that of a local system, and is never deleted.
const LOCK_FILE: &str = "saga.lock";
/// Longer than a stop, which takes up to 10 seconds, so that scripts need not wait themselves.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15);
const LOCK_POLL: Duration = Duration::from_millis(50);

/// Rejects a folder that holds other files and has never held a local system.
pub fn check_is_ours(folder: &Path) -> anyhow::Result<()> {
    let mut entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| unwritable(folder)),
    };
    let is_ours = [LOCK_FILE, PLAN_FILE].iter().any(|name| folder.join(name).exists());
    if is_ours || entries.next().is_none() {
        return Ok(());
    }
    bail!(
        "{} holds other files than those of a local system: choose another folder with --data",
        folder.display()
    )
}

/// Deletes everything in the folder. Call it with the [`lock`], after [`check_is_ours`].
pub fn wipe(folder: &Path) -> anyhow::Result<()> {
    let wipe = || -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else if entry.file_name() != LOCK_FILE {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    wipe().with_context(|| format!("{} cannot be emptied", folder.display()))
}

/// Creates the folder and locks it: nobody else starts or stops processes until the lock is dropped.
pub async fn lock(folder: &Path) -> anyhow::Result<File> {
    let open = || -> io::Result<File> {
        fs::create_dir_all(folder)?;
        File::create(folder.join(LOCK_FILE))
    };
    let file = open().with_context(|| unwritable(folder))?;
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => tokio::time::sleep(LOCK_POLL).await,
            Err(TryLockError::WouldBlock) => bail!(
                "another sagactl is starting or stopping processes in {}: wait for it to end",
                folder.display()
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| unwritable(folder)),
        }
    }
}

/// Writes a file atomically: a reader finds the old or the new content.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes)?;
    fs::rename(new, path)
}

/// Error text for a folder that cannot be written.
pub fn unwritable(folder: &Path) -> String {
    format!("{} cannot be written: choose another folder with --data", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folder_with_other_files_is_rejected_unless_it_held_a_system() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        assert!(check_is_ours(&path.join("not-there")).is_ok());
        assert!(check_is_ours(path).is_ok());
        fs::write(path.join("thesis.txt"), "precious").expect("a file");
        assert!(check_is_ours(path).is_err());
        fs::remove_file(path.join("thesis.txt")).expect("it was there");
        drop(lock(path).await.expect("a lock"));
        fs::create_dir(path.join("order")).expect("a folder");
        assert!(check_is_ours(path).is_ok(), "also without a plan");
        wipe(path).expect("it is ours");
        assert!(check_is_ours(path).is_ok() && !path.join("order").exists());
    }
}
