//! Shell: the check of the dependencies rejects forbidden ones.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use serde_json::json;

use crate::system::workspace;

/// Runs the script with a fake cargo that reports these dependencies.
fn check(licence: Option<&str>, source: &str, tree: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let package = json!({"name": "leftpad", "version": "1.0.0", "license": licence, "source": source});
    std::fs::write(folder.path().join("metadata"), json!({"packages": [package]}).to_string())
        .expect("a file");
    std::fs::write(folder.path().join("tree"), tree).expect("a file");
    let cargo = folder.path().join("cargo");
    let script = format!("#!/bin/sh\ncat '{}'/\"$1\"\n", folder.path().display());
    std::fs::write(&cargo, script).expect("a program");
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).expect("it can run");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").expect("a path"));
    let mut check = Command::new(workspace().join("scripts/check-dependencies.sh"));
    check.env("PATH", path).output().expect("bash runs")
}

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn allowed_dependencies_pass() {
    for licence in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "ISC AND (Apache-2.0 OR ISC) AND BSD-3-Clause",
        "Apache-2.0 WITH LLVM-exception OR MIT",
    ] {
        let checked = check(Some(licence), REGISTRY, "serde v1.0.0\n");
        assert!(checked.status.success(), "{licence}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn each_forbidden_dependency_is_rejected_by_name() {
    let cases = [
        ("GPL-3.0", REGISTRY, "", "licences that are not on the list"),
        ("MIT AND GPL-3.0", REGISTRY, "", "licences that are not on the list"),
        ("(MIT OR Apache-2.0) AND GPL-3.0", REGISTRY, "", "licences that are not on the list"),
        ("MIT", "git+https://example.org/leftpad", "", "not from the registry"),
        ("MIT", REGISTRY, "ring v0.17.0\n", "a second TLS provider"),
        ("MIT", REGISTRY, "tokio v1.0.0\n", "saga-core is pure, and cannot depend on"),
    ];
    let cases = cases.map(|(licence, source, tree, why)| (Some(licence), source, tree, why));
    for (licence, source, tree, why) in cases.into_iter().chain([(None, REGISTRY, "", "no licence")]) {
        let checked = check(licence, source, tree);
        let printed = String::from_utf8_lossy(&checked.stderr);
        assert_eq!(checked.status.code(), Some(1), "{why}: {printed}");
        assert!(printed.contains(why), "{why}: {printed}");
    }
}
