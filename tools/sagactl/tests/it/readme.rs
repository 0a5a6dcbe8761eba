//! Shell: the README names only what is there.

use std::collections::BTreeSet;
use std::process::Command;

use crate::system::{build, workspace};

/// Law 9: every law names tests, each of which the test runner knows, and the links lead somewhere.
#[test]
fn the_readme_names_only_what_is_there() {
    let root = workspace();
    let readme = std::fs::read_to_string(root.join("README.md")).expect("the README");
    let laws =
        readme.split("## The laws").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the laws");
    let tests = tests();
    let rows: Vec<&str> = laws.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert_eq!(rows.len(), 9, "nine laws: {rows:#?}");
    for (row, law) in rows.into_iter().zip(1..) {
        assert!(row.starts_with(&format!("| {law}. ")), "law {law}: {row}");
        let named: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test shows law {law}");
        for name in named {
            assert!(tests.contains(name), "law {law}: no test is called {name}");
        }
    }
    for target in readme.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(root.join(target).exists(), "the link to {target} leads nowhere");
    }
}

/// The names of all tests, without their modules, as the test runner lists them.
fn tests() -> BTreeSet<String> {
    let listing =
        ["test", "--workspace", "--locked", "--quiet", "--lib", "--bins", "--tests", "--", "--list"];
    let listed = Command::new(env!("CARGO")).args(listing).current_dir(workspace()).output();
    let listed = listed.expect("cargo runs");
    // It left the tests' own programs in the place of those that the other tests start.
    build();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("text");
    let names = names.lines().filter_map(|line| line.strip_suffix(": test"));
    names.filter_map(|name| name.rsplit("::").next()).map(str::to_owned).collect()
}
