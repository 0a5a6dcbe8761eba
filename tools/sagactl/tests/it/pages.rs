//! Shell: pages name only existing tests, functions and types.

use std::collections::BTreeSet;
use std::process::Command;

use crate::system::{build, workspace};

const GUARANTEES: usize = 8;

#[test]
fn guarantees_name_existing_tests() {
    let page = std::fs::read_to_string(workspace().join("docs/testing.md")).expect("docs/testing.md");
    let section = page.split("## Guarantees").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = section.expect("the guarantees").lines().filter(|line| line.starts_with("| ")).skip(2);
    let rows: Vec<&str> = rows.collect();
    assert_eq!(rows.len(), GUARANTEES, "{rows:#?}");
    let tests = tests();
    for (row, number) in rows.into_iter().zip(1..) {
        assert!(row.starts_with(&format!("| {number}. ")), "guarantee {number}: {row}");
        let named: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test shows guarantee {number}");
        for name in named {
            assert!(tests.contains(name), "guarantee {number}: no test is called {name}");
        }
    }
}

#[test]
fn code_map_of_readme_names_existing_functions_and_types() {
    let page = std::fs::read_to_string(workspace().join("README.md")).expect("README.md");
    let section = page.split("## Where each mechanism is").nth(1).and_then(|rest| rest.split("\n## ").next());
    let links = section.expect("the map of the code").split("[`").skip(1);
    let links: Vec<(&str, &str)> = links
        .map(|link| link.split_once("`](").expect("a link"))
        .map(|(name, rest)| (name, rest.split(')').next().expect("a target")))
        .filter(|(_, file)| file.ends_with(".rs"))
        .collect();
    assert!(links.len() > 50, "{links:#?}");
    for (name, file) in links {
        let code =
            std::fs::read_to_string(workspace().join(file)).unwrap_or_else(|why| panic!("{file}: {why}"));
        let words: Vec<&str> =
            code.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
        assert!(words.contains(&name) || file.ends_with(name), "{file} names no {name}");
    }
}

/// Names of all tests, without their modules, as the test runner lists them.
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
