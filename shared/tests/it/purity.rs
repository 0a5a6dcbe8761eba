//! Every file says which layer it is, and pure files are pure.

use std::path::{Path, PathBuf};

/// What pure code does not know: time, chance, the outside world, and the order of a hash map.
const IMPURE: [&str; 24] = [
    "async ",
    ".await",
    "tokio",
    "reqwest",
    "rusqlite",
    "async_nats",
    "axum",
    "std::fs",
    "std::env",
    "std::net",
    "std::thread",
    "std::process",
    "std::io",
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "now_v7",
    "new_v4",
    "fastrand",
    "rand::",
    "HashMap",
    "HashSet",
    "println!",
    "dbg!",
];

#[test]
fn every_file_says_which_layer_it_is() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|source| layer(&source.text).is_none() && !is_only_a_list_of_modules(source))
        .map(|source| source.path)
        .collect();
    assert!(silent.is_empty(), "these do not begin with `//! Pure: ` or `//! Shell: `: {silent:#?}");
}

#[test]
fn pure_files_are_pure() {
    let sources = sources();
    let pure: Vec<_> = sources.iter().filter(|source| layer(&source.text) == Some(Layer::Pure)).collect();
    assert!(pure.len() >= 15, "the pure core was here once: {} files", pure.len());
    let findings: Vec<_> = pure
        .iter()
        .flat_map(|source| impurities(&source.text).map(|it| format!("{}:{it}", source.path.display())))
        .collect();
    assert!(findings.is_empty(), "{findings:#?}");
}

/// The test of the test.
#[test]
fn an_impurity_is_found_wherever_it_hides() {
    for impurity in IMPURE {
        let text = format!("//! Pure: nothing.\n\nfn f() {{\n    let x = 1; {impurity}\n}}\n");
        assert_eq!(impurities(&text).collect::<Vec<_>>(), [format!("4: {impurity}")]);
    }
    let harmless = "//! Pure: knows no tokio.\n\n/// As HashMap does.\nfn f() {} // not async at all\n\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
    assert_eq!(impurities(harmless).count(), 0);
    let behind_the_tests = format!("{harmless}\nuse std::env;\n");
    assert_eq!(impurities(&behind_the_tests).collect::<Vec<_>>(), ["11: std::env"]);
    let one_test_item = "//! Pure: x.\n#[cfg(test)]\nuse std::fs;\nuse std::env;\n";
    assert_eq!(impurities(one_test_item).collect::<Vec<_>>(), ["4: std::env"]);
    let a_url = "//! Pure: x.\nconst A: &str = \"http://b\"; use std::net::TcpStream;\n";
    assert_eq!(impurities(a_url).collect::<Vec<_>>(), ["2: std::net"]);
}

#[test]
fn a_layer_is_read_from_the_first_line_only() {
    assert_eq!(layer("//! Pure: rules.\n"), Some(Layer::Pure));
    assert_eq!(layer("//! Shell: sockets.\n//! Pure: not.\n"), Some(Layer::Shell));
    assert_eq!(layer("use std::fs;\n//! Pure: too late.\n"), None);
    assert_eq!(layer("//! Purely: no.\n"), None);
    assert_eq!(layer(""), None);
}

#[derive(Debug, PartialEq, Eq)]
enum Layer {
    Pure,
    Shell,
}

fn layer(text: &str) -> Option<Layer> {
    let first = text.lines().next()?;
    match first.strip_prefix("//! ")?.split_once(": ")? {
        ("Pure", _) => Some(Layer::Pure),
        ("Shell", _) => Some(Layer::Shell),
        _ => None,
    }
}

/// A `lib.rs` or `mod.rs` that declares what its modules are, and does nothing itself.
fn is_only_a_list_of_modules(source: &Source) -> bool {
    let is_root = source.path.ends_with("lib.rs") || source.path.ends_with("mod.rs");
    let does_something = source.text.lines().any(|line| line.contains("fn ") && line.ends_with('{'));
    is_root && source.text.starts_with("//! ") && !does_something
}

/// Line number and word of each impurity outside comments and tests.
fn impurities(text: &str) -> impl Iterator<Item = String> {
    let mut in_tests = false;
    let mut one_more = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line == "#[cfg(test)]" {
            one_more = true;
            return None;
        }
        if std::mem::take(&mut one_more) {
            in_tests = line.ends_with('{');
            return None;
        }
        if in_tests {
            in_tests = line != "}";
            return None;
        }
        let code = if line.trim_start().starts_with("//") { "" } else { line };
        let code = code.split_once(" // ").map_or(code, |(code, _)| code);
        IMPURE.iter().find(|word| code.contains(*word)).map(|word| format!("{}: {word}", index + 1))
    })
}

struct Source {
    path: PathBuf,
    text: String,
}

/// Every source file of this crate and of the services.
fn sources() -> Vec<Source> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR"));
    let services = shared.parent().expect("the workspace").join("services");
    let mut folders = vec![shared.join("src")];
    let crates = std::fs::read_dir(&services).expect("the services");
    folders.extend(crates.map(|service| service.expect("a service").path().join("src")));
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                sources.push(Source { path, text });
            }
        }
    }
    assert!(sources.len() > 50, "only {} sources found under {}", sources.len(), services.display());
    sources
}
