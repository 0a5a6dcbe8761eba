//! Shell: a small disk for a broker, so that filling it affects nothing else. Needs root. It is mounted in a mount namespace
//! that ends with this process.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use nix::unistd::Uid;

/// Set in the process that has a mount namespace of its own.
const HAS_NAMESPACE: &str = "SAGA_CHAOS_NAMESPACE";
/// Enough for a run of an hour. A tmpfs takes memory only for what is written.
const SIZE: &str = "size=1g";
const CHUNK: usize = 4 * 1024 * 1024;

/// A disk mounted at a folder.
pub struct SmallDisk(PathBuf);

/// Returns `true` if this process can mount such disks. As root without a namespace, it re-executes itself in one with the
/// same arguments.
pub fn enter_namespace() -> bool {
    if env::var_os(HAS_NAMESPACE).is_some() {
        return true;
    }
    let Ok(this) = env::current_exe() else { return false };
    if !Uid::effective().is_root()
        || !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|it| it.success())
    {
        return false;
    }
    let mut again = Command::new("unshare");
    again.args(["--mount", "--propagation", "private", "--"]).arg(this).args(env::args_os().skip(1));
    // Returns only on failure.
    let _failed = again.env(HAS_NAMESPACE, "1").exec();
    false
}

impl SmallDisk {
    /// Mounts a disk at a folder, which is created if missing.
    pub fn mount(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "saga-chaos"]).arg(folder).output()?;
        if !mounted.status.success() {
            bail!("no disk for {}: {}", folder.display(), String::from_utf8_lossy(&mounted.stderr).trim());
        }
        Ok(Self(folder.to_owned()))
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    pub fn fill(&self) -> anyhow::Result<()> {
        let path = self.filler();
        let mut file = fs::File::create(&path).with_context(|| path.display().to_string())?;
        let mut chunk = CHUNK;
        while chunk > 0 {
            match file.write_all(&vec![0; chunk]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => chunk /= 2,
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
        }
        Ok(())
    }

    pub fn free(&self) -> io::Result<()> {
        fs::remove_file(self.filler())
    }

    /// Copies its content to the folder beside it, for later inspection.
    pub fn keep(&self) {
        let beside = self.0.with_extension("kept");
        let _ = Command::new("cp").arg("-a").arg(&self.0).arg(beside).status();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // On failure it ends with the namespace.
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
