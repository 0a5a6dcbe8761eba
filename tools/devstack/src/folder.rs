//! Shell: the folder of a local system: whose it is, and who may start or stop processes in it.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::member::Member;

/// Folder of the system unless another is named.
pub const DEFAULT_FOLDER: &str = ".saga";

/// Describes the system; its presence tells that the folder is ours.
pub const PLAN_FILE: &str = "system.json";
/// Held by whoever starts or stops processes.
const LOCK_FILE: &str = "lock";
/// A stop takes up to 10 seconds: waiting that long for another's to end makes scripts simple.
const LOCK_WAIT: Duration = Duration::from_secs(15);
/// How often another's lock is tried again.
const LOCK_POLL: Duration = Duration::from_millis(50);

/// Refuses a folder that holds something else than a local system.
pub fn check_is_ours(folder: &Path) -> anyhow::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| unwritable(folder)),
    };
    let names: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    // With the lock and no plan: a start that went no further, a deletion that broke off, or a plan that was damaged.
    if names.is_empty() || has(PLAN_FILE) || (has(LOCK_FILE) && names.iter().all(|name| is_of_a_system(name)))
    {
        return Ok(());
    }
    bail!(
        "{} holds other things than a local system, and is left alone: choose another folder with --data",
        folder.display()
    )
}

/// Whether a local system has something of this name, beside its plan.
fn is_of_a_system(name: &OsStr) -> bool {
    let is_of_a_member = |name: &str| name.parse::<Member>().is_ok();
    name.to_str()
        .is_some_and(|name| [LOCK_FILE, "run", "log", "credentials"].contains(&name) || is_of_a_member(name))
}

/// Deletes all that is in the folder, to be called under [`lock`] and after [`check_is_ours`].
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

/// Makes the folder and takes it: until the answer is dropped nobody else starts or stops its processes.
pub async fn lock(folder: &Path) -> anyhow::Result<File> {
    let open = || -> io::Result<File> {
        fs::create_dir_all(folder)?;
        File::create(folder.join(LOCK_FILE))
    };
    let file = open().with_context(|| unwritable(folder))?;
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => tokio::time::sleep(LOCK_POLL).await,
            Err(TryLockError::WouldBlock) => bail!(
                "another sagactl is starting or stopping processes in {}: wait for it",
                folder.display()
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| unwritable(folder)),
        }
    }
}

/// Writes a file so that a reader finds the old or the new, never a part.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let half_done = path.with_extension("new");
    fs::write(&half_done, bytes)?;
    fs::rename(half_done, path)
}

/// The same, of what is nobody else's business: only this user may read it.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_owned(path, bytes, None)
}

/// The same, of what those who may read the one that is there may read on: its owner, group and mode stay.
pub fn rewrite_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) => write_owned(path, bytes, Some(&there)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => write_private(path, bytes),
        Err(error) => Err(error),
    }
}

fn write_owned(path: &Path, bytes: &[u8], like: Option<&fs::Metadata>) -> io::Result<()> {
    let half_done = path.with_extension("new");
    // One that a crash left behind may be readable by others.
    match fs::remove_file(&half_done) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&half_done)?;
    if let Some(like) = like {
        // Who may not give it away leaves the old one to those who read it.
        fchown(&file, Some(like.uid()), Some(like.gid()))?;
        file.set_permissions(like.permissions())?;
    }
    file.write_all(bytes)?;
    // What was taken back is not there again after a power cut.
    file.sync_all()?;
    fs::rename(half_done, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Makes a secret of chance, unless it is there; answers whether it has.
pub fn keep_random(file: &Path) -> anyhow::Result<bool> {
    if file.exists() {
        return Ok(false);
    }
    write_secret(file, &random()?)?;
    Ok(true)
}

/// Writes one that was made before.
pub fn write_secret(file: &Path, secret: &str) -> anyhow::Result<()> {
    write_private(file, secret.as_bytes()).with_context(|| format!("{} cannot be written", file.display()))
}

/// Reads it: letters and digits, so that it can stand in an address and in a statement.
pub fn read_random(file: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let secret = text.trim().to_owned();
    match !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        true => Ok(secret),
        false => bail!("{} is damaged: remove it, and `up` makes a new one", file.display()),
    }
}

/// What nobody guesses: 192 bits, in 48 digits.
pub fn random() -> anyhow::Result<String> {
    Ok(chance::<24>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Bytes of chance that nobody foresees.
pub fn chance<const BYTES: usize>() -> anyhow::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("this machine has no chance to give: {error}"))?;
    Ok(bytes)
}

/// Makes a folder, unless it is there, into which only this user may look.
pub fn create_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// What is said of a folder in which nothing can be made.
pub fn unwritable(folder: &Path) -> String {
    format!("{} cannot be written: choose another folder with --data", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_readable_by_nobody_else_whatever_was_there_before() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        let (inner, path) = (folder.path().join("inner"), folder.path().join("inner/secret.nk"));
        create_private(&inner).expect("a folder");
        for left_behind in [&path, &path.with_extension("new")] {
            fs::write(left_behind, "old").expect("a file");
            fs::set_permissions(left_behind, fs::Permissions::from_mode(0o644)).expect("it is ours");
        }
        write_private(&path, b"new").expect("it is written");
        assert_eq!((mode(&inner), mode(&path)), (0o700, 0o600));
        assert_eq!(fs::read(&path).expect("it is there"), b"new");
        create_private(&inner).expect("it is there already");
    }

    #[test]
    fn a_secret_is_made_once_and_nothing_else_is_taken_for_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("order.password");
        assert!(keep_random(&file).expect("made"));
        let made = read_random(&file).expect("a secret");
        assert!(!keep_random(&file).expect("there already") && made.len() == 48);
        for bad in ["", "a'b", "ä"] {
            fs::write(&file, bad).expect("written");
            assert!(read_random(&file).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_folder_with_other_things_is_left_alone() {
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
        assert!(check_is_ours(path).is_err(), "the thesis is no system's");
    }

    /// A defect: who was told to remove a damaged plan was refused then.
    #[test]
    fn a_system_without_its_plan_is_a_system() {
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
