//! Shell: the patches in `planted` still apply. `scripts/planted-faults.sh` builds each of them, which takes
//! too long for every test run.

use std::path::Path;
use std::process::Command;

#[test]
fn planted_patches_apply() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let patches =
        here.join("planted").read_dir().expect("a folder").map(|entry| entry.expect("a file").path());
    let patches: Vec<_> = patches.collect();
    assert!(patches.len() > 10, "{patches:?}");
    for patch in patches {
        let mut command = Command::new("git");
        let output = command.args(["apply", "--check"]).arg(&patch).current_dir(here.join("../..")).output();
        let output = output.expect("git is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
