//! Shell: `scripts/up.sh` and its siblings build in the repository, from any folder, and only if they have to.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::system::workspace;

/// Fake cargo that records where it builds, and builds nothing.
const RECORDING_CARGO: &str = "#!/bin/sh
case $1 in --version) echo 'cargo 99.0.0' && exit ;; esac
printf '%s\\n' \"$PWD\" \"$CARGO_TARGET_DIR\" \"$*\" >>\"$0.calls\"
exit 9
";

/// Runs a script in `folder`, with a relative target folder and the fake cargo.
fn run(folder: &Path, script: &str, arguments: &[&str]) -> Output {
    let cargo = folder.join("cargo");
    std::fs::write(&cargo, RECORDING_CARGO).expect("a program");
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).expect("an executable");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new(workspace().join("scripts").join(script));
    command.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", "built").env("PATH", path);
    command.output().expect("bash runs")
}

/// Recorded builds: working directory, target folder and arguments of each.
fn builds(folder: &Path) -> Vec<String> {
    let calls = std::fs::read_to_string(folder.join("cargo.calls")).unwrap_or_default();
    calls.lines().map(str::to_owned).collect()
}

#[test]
fn scripts_build_in_the_repository_when_called_from_another_folder() {
    // Cargo reads it from the working directory.
    let config =
        std::fs::read_to_string(workspace().join(".cargo/config.toml")).expect("the settings of cargo");
    assert!(config.contains("LIBSQLITE3_FLAGS"), "{config}");
    let root = workspace().canonicalize().expect("the repository").display().to_string();
    for script in ["up.sh", "chaos.sh"] {
        let folder = tempfile::tempdir().expect("a folder");
        let caller = folder.path().canonicalize().expect("a folder");
        let ended = run(&caller, script, &[]);
        assert_eq!(ended.status.code(), Some(9), "{script}: {}", String::from_utf8_lossy(&ended.stderr));
        let target = caller.join("built").display().to_string();
        let expected = "build --release --workspace --bins --exclude simulation --exclude loadgen";
        assert_eq!(builds(&caller), [root.as_str(), &target, expected], "{script}");
    }
}

#[test]
fn up_without_build_names_missing_programs_and_builds_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run(folder.path(), "up.sh", &["--no-build"]);
    assert_eq!(ended.status.code(), Some(1));
    let message = String::from_utf8_lossy(&ended.stderr);
    assert!(message.contains("not built: sagactl admin order inventory payment bank"), "{message}");
    assert_eq!(builds(folder.path()), [""; 0]);
}

#[test]
fn up_without_build_passes_only_other_options_to_sagactl() {
    let folder = tempfile::tempdir().expect("a folder");
    let release = folder.path().join("built/release");
    std::fs::create_dir_all(&release).expect("a folder");
    for program in ["sagactl", "order", "inventory", "payment", "admin", "bank"] {
        let program = release.join(program);
        std::fs::write(&program, "#!/bin/sh\nprintf '%s\\n' \"$*\"\n").expect("a program");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("an executable");
    }
    let ended = run(folder.path(), "up.sh", &["--data", "here", "--no-build", "--fresh"]);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "up --data here --fresh\n");
    assert_eq!(builds(folder.path()), [""; 0]);
}

/// On a fresh clone a build takes minutes, so the script has a usage text of its own. It lists all options of `sagactl up`.
#[test]
fn up_help_lists_all_options_without_a_build() {
    let folder = tempfile::tempdir().expect("a folder");
    let usage = run(folder.path(), "up.sh", &["--help"]);
    assert!(usage.status.success());
    let usage = String::from_utf8(usage.stdout).expect("text");
    let help =
        Command::new(env!("CARGO_BIN_EXE_sagactl")).args(["up", "--help"]).output().expect("sagactl runs");
    let help = String::from_utf8(help.stdout).expect("text");
    let own = help.split("\nSystem and operator").next().expect("its own options");
    let options = own.split_whitespace().filter(|word| word.starts_with("--") && *word != "--help");
    assert!(options.clone().count() >= 6, "{help}");
    for option in options.map(|option| option.trim_end_matches([',', '.'])) {
        assert!(usage.contains(option), "{option} is missing: {usage}");
    }
    let mistyped = run(folder.path(), "up.sh", &["--detahc"]);
    assert_eq!(mistyped.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&mistyped.stderr).contains("unknown option --detahc"));
    assert_eq!(builds(folder.path()), [""; 0]);
}
