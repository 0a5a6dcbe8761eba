//! Shell: reads files that settings name, and rejects those that others may read or write.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// File of a setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {}: {why}", file.display())]
pub struct BadFile {
    /// Key of the setting that names the file.
    pub setting: &'static str,
    /// Path of the file as set.
    pub file: PathBuf,
    /// Problem with the file, and what to do.
    pub why: String,
}

/// Reads the file of `setting`. Rejects permissions of others that are in `forbidden` (mode bits). `missing` is the
/// advice for a missing file.
///
/// # Errors
/// If the file cannot be read as text, or has a forbidden permission.
pub fn read_protected(
    setting: &'static str,
    file: &Path,
    forbidden: u32,
    missing: &str,
) -> Result<String, BadFile> {
    let bytes = read_protected_bytes(setting, file, forbidden, missing)?;
    let why = "is not UTF-8 text".to_owned();
    String::from_utf8(bytes).map_err(|_| BadFile { setting, file: file.to_owned(), why })
}

/// Reads a file like [`read_protected`], which need not be text.
///
/// # Errors
/// If the file cannot be read, or has a forbidden permission.
pub fn read_protected_bytes(
    setting: &'static str,
    file: &Path,
    forbidden: u32,
    missing: &str,
) -> Result<Vec<u8>, BadFile> {
    let bad = |why: String| BadFile { setting, file: file.to_owned(), why };
    let read =
        || -> io::Result<(u32, Vec<u8>)> { Ok((fs::metadata(file)?.permissions().mode(), fs::read(file)?)) };
    let (mode, bytes) = read().map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        bad(if is_missing { format!("is not there: {missing}") } else { error.to_string() })
    })?;
    if mode & forbidden != 0 {
        let may = if forbidden & 0o444 == 0 { "written" } else { "read or written" };
        return Err(bad(format!(
            "it can be {may} by others (mode {:o}): run chmod 600, and check who may have read or changed it",
            mode & 0o777
        )));
    }
    Ok(bytes)
}
