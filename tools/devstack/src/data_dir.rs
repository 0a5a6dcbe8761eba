//! Shell: the data folder of a local system: its ownership check, its lock, and files that are replaced atomically.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::component::Component;

/// Folder of the system unless another is named.
pub const DEFAULT_DATA_DIR: &str = ".saga";
/// File with the plan; its presence marks the folder as that of a local system.
pub const PLAN_FILE: &str = "system.json";
/// Folder of changes that admin's audit log does not have yet.
pub const AUDIT_DIR: &str = "audit";
/// Locked by a process that starts or stops others.
const LOCK_FILE: &str = "saga.lock";
/// Locked by `up` until everything is ready. Other commands start and stop processes meanwhile.
const UP_LOCK_FILE: &str = "up.lock";
const LOCK_FILES: [&str; 2] = [LOCK_FILE, UP_LOCK_FILE];
/// Longer than a stop, which takes up to 10 seconds, so that scripts need not wait themselves.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15);
const LOCK_POLL: Duration = Duration::from_millis(50);

/// Rejects a folder that holds anything but a local system.
pub fn check_is_ours(folder: &Path) -> anyhow::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| unwritable(folder)),
    };
    let names: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
    let has = |expected: &str| names.iter().any(|name| name == expected);
    // Lock without plan: an interrupted start or deletion, or a damaged plan that was removed.
    let is_locked = LOCK_FILES.into_iter().any(has);
    if names.is_empty() || has(PLAN_FILE) || (is_locked && names.iter().all(|name| is_of_a_system(name))) {
        return Ok(());
    }
    bail!(
        "{} holds other files than those of a local system: choose another folder with --data",
        folder.display()
    )
}

/// True for the name of an entry that local systems have in addition to the plan.
fn is_of_a_system(name: &OsStr) -> bool {
    let is_of_a_component = |name: &str| name.parse::<Component>().is_ok();
    name.to_str().is_some_and(|name| {
        LOCK_FILES.contains(&name)
            || ["run", "log", "credentials", AUDIT_DIR].contains(&name)
            || is_of_a_component(name)
    })
}

/// Deletes everything in the folder. Call it with the [`lock`], after [`check_is_ours`].
pub fn wipe(folder: &Path) -> anyhow::Result<()> {
    let wipe = || -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else if !LOCK_FILES.iter().any(|lock| entry.file_name() == *lock) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    wipe().with_context(|| format!("{} cannot be emptied", folder.display()))
}

/// Creates the folder and locks it: nobody else starts or stops processes until the lock is dropped.
pub async fn lock(folder: &Path) -> anyhow::Result<File> {
    match wait_for_lock(folder, LOCK_FILE, || false).await? {
        Some(file) => Ok(file),
        None => bail!(
            "another sagactl is starting or stopping processes in {}: wait for it to end",
            folder.display()
        ),
    }
}

/// Creates the folder and takes the lock of `up`. Returns `None` as soon as somebody else has it and something `is_running`,
/// or after a while. Take it before the [`lock`].
pub async fn lock_for_up(folder: &Path, is_running: impl Fn() -> bool) -> anyhow::Result<Option<File>> {
    wait_for_lock(folder, UP_LOCK_FILE, is_running).await
}

/// Locks a file. Returns `None` if somebody else has it until it is `hopeless`, or until the time limit.
async fn wait_for_lock(
    folder: &Path,
    name: &str,
    hopeless: impl Fn() -> bool,
) -> anyhow::Result<Option<File>> {
    let open = || -> io::Result<File> {
        fs::create_dir_all(folder)?;
        File::create(folder.join(name))
    };
    let file = open().with_context(|| unwritable(folder))?;
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if Instant::now() >= until || hopeless() => return Ok(None),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_POLL).await,
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

    #[test]
    fn folder_with_other_files_is_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        assert!(check_is_ours(&path.join("not-there")).is_ok());
        assert!(check_is_ours(path).is_ok());
        fs::write(path.join("thesis.txt"), "precious").expect("a file");
        assert!(check_is_ours(path).is_err());
        fs::write(path.join(PLAN_FILE), "{}").expect("a file");
        assert!(check_is_ours(path).is_ok());
        fs::remove_file(path.join(PLAN_FILE)).expect("it was there");
        fs::write(path.join(LOCK_FILE), "").expect("a file");
        assert!(check_is_ours(path).is_err(), "another file beside the lock");
    }

    #[test]
    fn folder_of_a_system_without_plan_is_accepted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        for name in ["order", "nats", "credentials", "log", "run"] {
            fs::create_dir(path.join(name)).expect("a folder");
        }
        assert!(check_is_ours(path).is_err(), "others have folders of these names");
        fs::write(path.join(LOCK_FILE), "").expect("a file");
        assert!(check_is_ours(path).is_ok());
    }
}
