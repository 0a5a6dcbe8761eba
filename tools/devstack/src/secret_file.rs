//! Shell: files that only their owner may read, and random secrets in them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use anyhow::{Context as _, bail};

/// Writes a file atomically that only this user may read.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, None)
}

/// Replaces a file atomically and keeps its owner, group and mode. Creates a private one if there is none.
pub fn rewrite_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(existing) => write(path, bytes, Some(&existing)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => write_private(path, bytes),
        Err(error) => Err(error),
    }
}

fn write(path: &Path, bytes: &[u8], like: Option<&fs::Metadata>) -> io::Result<()> {
    let new = path.with_extension("new");
    // A file that a crash left behind may be readable by others.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    if let Some(like) = like {
        // If the owner cannot be kept, this fails and the old file stays with its readers.
        fchown(&file, Some(like.uid()), Some(like.gid()))?;
        file.set_permissions(like.permissions())?;
    }
    file.write_all(bytes)?;
    // A revoked token must not come back after a power cut.
    file.sync_all()?;
    fs::rename(new, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Creates a folder that only this user may enter.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a file with a random secret unless it exists.
pub fn ensure_secret(file: &Path) -> anyhow::Result<()> {
    if file.exists() { Ok(()) } else { write_secret(file, &random_secret()?) }
}

pub fn write_secret(file: &Path, secret: &str) -> anyhow::Result<()> {
    write_private(file, secret.as_bytes()).with_context(|| format!("{} cannot be written", file.display()))
}

/// Reads a secret of letters and digits, which needs no quoting in a URL or a statement.
pub fn read_secret(file: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let secret = text.trim().to_owned();
    match !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        true => Ok(secret),
        false => bail!("{} is damaged: remove it, and `up` creates a new one", file.display()),
    }
}

/// 192 random bits in 48 hexadecimal digits.
pub fn random_secret() -> anyhow::Result<String> {
    Ok(random_bytes::<24>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Random bytes of the operating system, fit for secrets.
pub fn random_bytes<const BYTES: usize>() -> anyhow::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("the operating system gives no random bytes: {error}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn private_file_is_readable_by_its_owner_alone_whatever_was_there_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        let (inner, path) = (folder.path().join("inner"), folder.path().join("inner/secret.nk"));
        create_private_dir(&inner).expect("a folder");
        for leftover in [&path, &path.with_extension("new")] {
            fs::write(leftover, "old").expect("a file");
            fs::set_permissions(leftover, fs::Permissions::from_mode(0o644)).expect("it is ours");
        }
        write_private(&path, b"new").expect("it is written");
        assert_eq!((mode(&inner), mode(&path)), (0o700, 0o600));
        assert_eq!(fs::read(&path).expect("it is there"), b"new");
        create_private_dir(&inner).expect("it is there already");
    }

    #[test]
    fn secret_is_created_once_and_damaged_ones_are_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("order.password");
        ensure_secret(&file).expect("created");
        let created = read_secret(&file).expect("a secret");
        ensure_secret(&file).expect("there already");
        assert_eq!((read_secret(&file).expect("a secret"), created.len()), (created.clone(), 48));
        for bad in ["", "a'b", "ä"] {
            fs::write(&file, bad).expect("written");
            assert!(read_secret(&file).is_err(), "{bad:?}");
        }
    }
}
