//! Shell: a log file that is rotated when it is full.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// File to which lines are appended, each in one write. A full file becomes `FILE.1`, the previous `FILE.1` becomes
/// `FILE.2`, and so on up to `keep`. Older files are deleted.
pub(super) struct RotatingFile {
    path: PathBuf,
    max_bytes: u64,
    keep: usize,
    /// Buffered; the writer flushes when no line waits.
    file: BufWriter<File>,
    bytes: u64,
}

impl RotatingFile {
    /// Opens the file for appending.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn open(path: PathBuf, max_bytes: u64, keep: usize) -> io::Result<Self> {
        let file = append_to(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, max_bytes, keep, file: BufWriter::new(file), bytes })
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        for number in (1..self.keep).rev() {
            ignore_missing(fs::rename(self.full(number), self.full(number + 1)))?;
        }
        ignore_missing(match self.keep {
            0 => fs::remove_file(&self.path),
            _ => fs::rename(&self.path, self.full(1)),
        })?;
        self.file = BufWriter::new(append_to(&self.path)?);
        self.bytes = 0;
        Ok(())
    }

    /// Path of a rotated file.
    fn full(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = line.len() as u64;
        if self.bytes > 0 && self.bytes + length > self.max_bytes {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.bytes += length;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

/// Ignores a file that somebody has deleted.
fn ignore_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use tempfile::{TempDir, tempdir};

    use super::*;

    /// Contents of every file of a folder, by name.
    fn files(folder: &TempDir) -> Vec<(String, String)> {
        let entries = fs::read_dir(folder.path()).expect("the folder").map(|entry| entry.expect("an entry"));
        let read = |path: PathBuf| fs::read_to_string(path).expect("text");
        let named =
            entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), read(entry.path())));
        let mut files: Vec<_> = named.collect();
        files.sort();
        files
    }

    fn append_lines(folder: &TempDir, keep: usize, lines: std::ops::Range<u32>) {
        let mut file = RotatingFile::open(folder.path().join("log"), 12, keep).expect("a file");
        lines.for_each(|number| file.write_all(format!("line{number}\n").as_bytes()).expect("written"));
        file.flush().expect("written");
    }

    fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn newest_lines_stay_in_configured_number_of_files_across_restarts() {
        let folder = tempdir().expect("a folder");
        append_lines(&folder, 2, 0..3);
        assert_eq!(files(&folder), named(&[("log", "line2\n"), ("log.1", "line0\nline1\n")]));
        append_lines(&folder, 2, 3..9);
        let newest = [("log", "line8\n"), ("log.1", "line6\nline7\n"), ("log.2", "line4\nline5\n")];
        assert_eq!(files(&folder), named(&newest));
    }

    #[test]
    fn rotation_deletes_full_file_when_none_is_kept() {
        let folder = tempdir().expect("a folder");
        append_lines(&folder, 0, 0..3);
        assert_eq!(files(&folder), named(&[("log", "line2\n")]));
    }

    #[test]
    fn rotation_recreates_deleted_file() {
        let folder = tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut file = RotatingFile::open(path.clone(), 12, 1).expect("a file");
        file.write_all(b"line0\nline1\n").expect("written");
        file.flush().expect("written");
        fs::remove_file(&path).expect("it is there");
        file.write_all(b"line2\n").expect("written");
        file.flush().expect("written");
        assert_eq!(files(&folder), named(&[("log", "line2\n")]));
    }
}
