//! Shell: the README names only what is there.

use std::path::Path;

use crate::system::workspace;

/// Law 9: the tests that the README names exist, and its links lead somewhere.
#[test]
fn the_readme_names_only_what_is_there() {
    let root = workspace();
    let readme = std::fs::read_to_string(root.join("README.md")).expect("the README");
    let laws =
        readme.split("## The laws").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the laws");
    let mut sources = String::new();
    for folder in ["shared", "services", "tools"] {
        gather(&root.join(folder), &mut sources);
    }
    let rows = laws.lines().filter(|line| line.starts_with("| ")).skip(2);
    let named: Vec<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 9, "every law names a test: {named:?}");
    for name in named {
        assert!(sources.contains(&format!("fn {name}(")), "no test is called {name}");
    }
    for target in readme.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(root.join(target).exists(), "the link to {target} leads nowhere");
    }
}

fn gather(folder: &Path, sources: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder").filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&std::fs::read_to_string(&path).expect("a source"));
        }
    }
}
