//! Shell: description of the machine and its SQLite, without names or paths.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::proc::number_in;

/// Processor, memory, kernel, and the file system and disk of `folder`.
pub fn describe(folder: &Path) -> anyhow::Result<Value> {
    let cpus = fs::read_to_string("/proc/cpuinfo")?;
    let model =
        cpus.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    let memory = fs::read_to_string("/proc/meminfo")?;
    let (device, file_system) = mounted(&fs::canonicalize(folder)?)?;
    Ok(json!({
        "cpu": model.map_or("unknown", |(_, model)| model.trim()),
        "cores": std::thread::available_parallelism()?,
        "memory_mib": number_in(&memory, "MemTotal") / 1024,
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
        "architecture": std::env::consts::ARCH,
        "sqlite": rusqlite::version(),
        "file_system": file_system,
        "disk": disk(&device),
    }))
}

/// Device and file system of a path.
fn mounted(path: &Path) -> anyhow::Result<(String, String)> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        Some((fields.next()?, fields.next()?, fields.next()?))
    });
    let holds = mounts.filter(|(_, point, _)| path.starts_with(point));
    let nearest = holds.max_by_key(|(_, point, _)| point.len());
    let (device, _, kind) = nearest.context("no mount holds the folder")?;
    Ok((device.to_owned(), kind.to_owned()))
}

/// Driver family of a disk, and its rotational flag.
fn disk(device: &str) -> String {
    let Some(name) = device.strip_prefix("/dev/") else { return "none of its own".to_owned() };
    let family = ["nvme", "xvd", "vd", "sd", "mapper", "dm-", "md", "loop"];
    let family = family.into_iter().find(|family| name.starts_with(family)).unwrap_or("other");
    let spins = fs::read_to_string(format!("/sys/class/block/{name}/queue/rotational"));
    match spins.as_deref().map(str::trim) {
        Ok("0") => format!("{family}, not rotational"),
        Ok("1") => format!("{family}, rotational"),
        Ok(_) | Err(_) => family.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_described() {
        let machine = describe(Path::new("/tmp")).expect("a machine");
        assert!(
            machine["cores"].as_u64() > Some(0) && machine["memory_mib"].as_u64() > Some(100),
            "{machine:#}"
        );
        assert!(machine["file_system"].as_str().is_some_and(|kind| !kind.is_empty()), "{machine:#}");
    }
}
