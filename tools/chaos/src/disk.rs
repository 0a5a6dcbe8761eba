//! Shell: a small disk of a broker's own, so that it can be filled without harm to anybody else. Root alone can have one,
//! and then in a namespace of mounts that ends with this process: nothing is left of it, whatever happens.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use nix::unistd::Uid;

/// Set for the process that has a namespace of its own.
const HAS_NAMESPACE: &str = "SAGA_CHAOS_NAMESPACE";
/// What a run of an hour stores there, and in memory: it is one of pages that are there only when they are written.
const SIZE: &str = "size=1g";
/// So much is written at once.
const PIECE: usize = 4 * 1024 * 1024;

/// A disk of its own below a folder.
pub struct SmallDisk(PathBuf);

/// Whether this process can have such disks. One of root that has no namespace yet is replaced by one that has, with the same
/// arguments.
pub fn is_possible() -> bool {
    if env::var_os(HAS_NAMESPACE).is_some() {
        return true;
    }
    let Ok(this) = env::current_exe() else { return false };
    if !Uid::effective().is_root()
        || !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|it| it.success())
    {
        return false;
    }
    let mut anew = Command::new("unshare");
    anew.args(["--mount", "--propagation", "private", "--"]).arg(this).args(env::args_os().skip(1));
    // It comes back only when it fails.
    let _failed = anew.env(HAS_NAMESPACE, "1").exec();
    false
}

impl SmallDisk {
    /// Gives a folder one, which is made if it is not there.
    pub fn below(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "saga-chaos"]).arg(folder).output()?;
        if !mounted.status.success() {
            bail!("no disk for {}: {}", folder.display(), String::from_utf8_lossy(&mounted.stderr).trim());
        }
        Ok(Self(folder.to_owned()))
    }

    /// Whose folder it is.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Writes until nothing more can be written.
    pub fn fill(&self) -> anyhow::Result<()> {
        let path = self.filler();
        let mut file = fs::File::create(&path).with_context(|| path.display().to_string())?;
        let mut piece = PIECE;
        while piece > 0 {
            match file.write_all(&vec![0; piece]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => piece /= 2,
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
        }
        Ok(())
    }

    /// Makes room again.
    pub fn empty(&self) -> io::Result<()> {
        fs::remove_file(self.filler())
    }

    /// What is on it is put beside it, for whoever looks at what went wrong.
    pub fn keep(&self) {
        let beside = self.0.with_extension("kept");
        let _ = Command::new("cp").arg("-a").arg(&self.0).arg(beside).status();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Else it ends with the namespace.
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
