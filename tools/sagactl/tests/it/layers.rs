//! Shell: architecture of the source tree: every file names its layer, pure files use only pure code, and folders of a
//! crate do not depend on each other in circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{Visit, visit_item, visit_path};
use syn::{Item, ItemUse, UseTree};

use crate::system::workspace;

/// Paths that pure code may not use: time, randomness, the outside world, and the order of a hash map.
// What awaits is `async`, and that is on the list.
const IMPURE: [&str; 15] = [
    "async ",
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
    "HashMap",
    "println!",
    "dbg!",
];
/// Packages that pure code may use. All other dependencies are for shells.
const PURE_PACKAGES: [&str; 26] = [
    "admin_api",
    "anyhow",
    "bytes",
    "comfy_table",
    // Draws into a string.
    "plotters",
    "saga_core",
    "contract",
    "serde",
    "serde_json",
    "uuid",
    "jiff",
    "utoipa",
    "strum",
    "thiserror",
    "garde",
    "iso_currency",
    "sha2",
    "hmac",
    "base64",
    "hdrhistogram",
    "serde_path_to_error",
    "humantime_serde",
    "clap",
    "unicode_width",
    "subtle",
    "budget",
];
/// Crates whose files are all pure.
const PURE_CRATES: [&str; 3] = ["shared/core", "shared/contract", "shared/admin-api"];

#[test]
fn every_file_names_its_layer() {
    let silent = |source: &&Source| source.layer.is_none() && !source.is_only_a_list_of_modules();
    let tree = Tree::read();
    let silent: Vec<_> = tree.sources.iter().filter(silent).map(Source::name).collect();
    assert!(silent.is_empty(), "these do not begin with `//! Pure: ` or `//! Shell: `: {silent:#?}");
    let shells = |source: &&Source| {
        PURE_CRATES.contains(&source.package.as_str()) && source.layer == Some(Layer::Shell)
    };
    let shells: Vec<_> = tree.sources.iter().filter(shells).map(Source::name).collect();
    assert!(shells.is_empty(), "these crates are pure as a whole: {shells:#?}");
}

#[test]
fn pure_files_are_pure_and_use_only_pure_code() {
    let tree = Tree::read();
    let pure: Vec<_> = tree.sources.iter().filter(|source| source.layer == Some(Layer::Pure)).collect();
    assert!(pure.len() >= 60, "the pure core was here once: {} files", pure.len());
    let findings: Vec<_> = pure.iter().flat_map(|source| tree.impurities(source)).collect();
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn no_two_modules_of_a_folder_depend_on_each_other() {
    let circles = Tree::read().circles();
    assert!(circles.is_empty(), "each of these needs the next, and the last needs the first: {circles:#?}");
}

/// Checks the checks: a small tree with one violation of each kind.
#[test]
fn layer_violations_are_found() {
    let tree = |files: &[(&str, &str)]| {
        let source =
            |(path, text): &(&str, &str)| Source::new("services/x", Path::new(path), (*text).to_owned());
        Tree {
            sources: files.iter().map(source).collect(),
            shell_packages: BTreeSet::from(["tokio".to_owned(), "saga_engine".to_owned()]),
        }
    };
    let findings = |text: &str| {
        let tree = tree(&[("a.rs", text), ("b.rs", "//! Shell: sockets.\n"), ("c.rs", "//! Pure: c.\n")]);
        tree.impurities(&tree.sources[0])
    };
    for impurity in IMPURE {
        let text = format!("//! Pure: nothing.\n\nconst A: &str = \"{impurity}\";\n");
        assert_eq!(findings(&text), [format!("services/x/src/a.rs: {impurity}")]);
    }
    for (faulty, found) in [
        ("use tokio::time;", "tokio"),
        ("use saga_engine::{host, store};", "saga_engine"),
        ("fn f() { tokio::time::sleep(); }", "tokio"),
        ("use crate::{c::C, b::B};", "crate::b, a shell"),
        ("use super::b;", "crate::b, a shell"),
        ("fn f(b: crate::b::B) {}", "crate::b, a shell"),
        ("#[cfg(test)]\nuse std::fs;\nuse tokio::time;", "tokio"),
    ] {
        let found = format!("services/x/src/a.rs: {found}");
        assert_eq!(findings(&format!("//! Pure: a.\n{faulty}\n")).first(), Some(&found), "{faulty}");
    }
    let harmless = "//! Pure: knows no tokio.\n\n/// As HashMap does.\nuse crate::c::C;\n\
                    fn f() {} // not async at all\n#[cfg(test)]\nmod tests {\n    use tokio::fs;\n    use std::fs;\n}\n";
    assert_eq!(findings(harmless), Vec::<String>::new());

    let circle = tree(&[
        ("one/mod.rs", "//! Pure: one.\nmod leaf;"),
        ("one/leaf.rs", "//! Pure: leaf.\nuse crate::two::T;\nuse super::X;"),
        ("two.rs", "//! Pure: two.\nfn f() { crate::one::g() }"),
    ]);
    assert_eq!(circle.circles(), ["services/x: one, two"]);
    let line = tree(&[("one.rs", "//! Pure: one.\nuse crate::two::T;"), ("two.rs", "//! Pure: two.\n")]);
    assert!(line.circles().is_empty());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Pure,
    Shell,
}

struct Source {
    /// Folder of the package, e.g. `services/order`.
    package: String,
    /// Path of the file, below `src`.
    path: PathBuf,
    /// Module, as `crate::…` names it; empty for the root.
    module: Vec<String>,
    layer: Option<Layer>,
    text: String,
    /// Paths that it uses outside its tests.
    paths: Vec<Vec<String>>,
}

impl Source {
    fn new(package: &str, path: &Path, text: String) -> Self {
        let mut module: Vec<String> =
            path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut paths = Paths::default();
        paths.visit_file(&file);
        let layer = match text.lines().next().and_then(|line| line.strip_prefix("//! ")?.split_once(": ")) {
            Some(("Pure", _)) => Some(Layer::Pure),
            Some(("Shell", _)) => Some(Layer::Shell),
            _ => None,
        };
        Self { package: package.to_owned(), path: path.to_owned(), module, layer, text, paths: paths.0 }
    }

    fn name(&self) -> String {
        format!("{}/src/{}", self.package, self.path.display())
    }

    /// True for a `lib.rs` or `mod.rs` that only declares modules.
    fn is_only_a_list_of_modules(&self) -> bool {
        let is_root = self.path.ends_with("lib.rs") || self.path.ends_with("mod.rs");
        let does_something = self.text.lines().any(|line| line.contains("fn ") && line.ends_with('{'));
        is_root && self.text.starts_with("//! ") && !does_something
    }

    /// Text without comments and tests.
    fn code(&self) -> String {
        let (mut in_tests, mut one_more) = (false, false);
        let code = |line: &&str| {
            if *line == "#[cfg(test)]" {
                one_more = true;
                return false;
            }
            if std::mem::take(&mut one_more) {
                in_tests = line.ends_with('{');
                return false;
            }
            let is_test = in_tests;
            in_tests = in_tests && *line != "}";
            !is_test && !line.trim_start().starts_with("//")
        };
        let lines = self.text.lines().filter(code);
        lines
            .map(|line| line.split_once(" // ").map_or(line, |(code, _)| code))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Gathers the paths that are used outside tests.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the other kinds of items stand beside tests nowhere"
        )]
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => &Vec::new(),
        };
        let is_test = attributes.iter().any(|it| {
            it.path().is_ident("cfg") && it.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
        });
        if !is_test {
            visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.flatten(&item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit_path(self, path);
    }
}

impl Paths {
    fn flatten(&mut self, tree: &UseTree, mut before: Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.flatten(&path.tree, before);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.flatten(tree, before.clone())),
            UseTree::Name(name) => {
                before.push(name.ident.to_string());
                self.0.push(before);
            }
            UseTree::Rename(rename) => {
                before.push(rename.ident.to_string());
                self.0.push(before);
            }
            UseTree::Glob(_) => self.0.push(before),
        }
    }
}

/// Dependencies between the modules of a folder.
type Needs<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

struct Tree {
    sources: Vec<Source>,
    /// Dependencies of the workspace that are not for pure code.
    shell_packages: BTreeSet<String>,
}

impl Tree {
    fn read() -> Self {
        let root = workspace();
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace's manifest");
        let dependencies = manifest.split("[workspace.dependencies]").nth(1).expect("the dependencies");
        let dependencies = dependencies.lines().take_while(|line| !line.starts_with('['));
        let names = dependencies.filter_map(|line| Some(line.split_once(" = ")?.0.replace('-', "_")));
        let shell_packages = names.filter(|name| !PURE_PACKAGES.contains(&name.as_str())).collect();
        let mut sources = Vec::new();
        for parent in ["shared", "services", "tools"] {
            let entries = std::fs::read_dir(root.join(parent)).expect("a folder of crates");
            let entries = entries.map(|entry| entry.expect("an entry").path());
            // What the images are built by stands among the crates.
            for folder in entries.filter(|path| path.is_dir()) {
                let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
                let mut paths = Vec::new();
                gather(&folder.join("src"), &mut paths);
                sources.extend(paths.into_iter().map(|path| {
                    let text = std::fs::read_to_string(&path).expect("a source file");
                    let below = path.strip_prefix(folder.join("src")).expect("below src");
                    let package = format!("{parent}/{name}");
                    // A program in a folder of its own is a crate of its own.
                    match below
                        .strip_prefix("bin")
                        .ok()
                        .and_then(|below| below.iter().next().zip(Some(below)))
                    {
                        Some((program, below)) => {
                            let package = format!("{package}/{}", program.to_string_lossy());
                            Source::new(&package, below.strip_prefix(program).expect("below it"), text)
                        }
                        None => Source::new(&package, below, text),
                    }
                }));
            }
        }
        assert!(sources.len() > 150, "only {} sources found under {}", sources.len(), root.display());
        Self { sources, shell_packages }
    }

    /// Forbidden paths that this pure file uses.
    fn impurities(&self, source: &Source) -> Vec<String> {
        let code = source.code();
        let words = IMPURE.iter().filter(|word| code.contains(**word)).map(|word| (*word).to_owned());
        let mut found: BTreeSet<String> = words.collect();
        for path in &source.paths {
            if self.shell_packages.contains(&path[0]) && !self.is_in_pure_module(path) {
                found.insert(path[0].clone());
            }
            let module = self.module_of(source, path);
            // The root of a crate lists what there is, and names the crate.
            let is_shell = |it: &&Source| it.layer == Some(Layer::Shell) && !it.module.is_empty();
            if let Some(shell) = module.filter(is_shell) {
                found.insert(format!("crate::{}, a shell", shell.module.join("::")));
            }
        }
        found.into_iter().map(|what| format!("{}: {what}", source.name())).collect()
    }

    /// True if the path leads into a pure module of another crate of this workspace.
    fn is_in_pure_module(&self, path: &[String]) -> bool {
        self.sources.iter().any(|source| {
            source.package.ends_with(&format!("/{}", path[0]))
                && source.layer == Some(Layer::Pure)
                && !source.module.is_empty()
                && path[1..].starts_with(&source.module)
        })
    }

    /// Finds the module of the same crate that this path leads into.
    fn module_of(&self, source: &Source, path: &[String]) -> Option<&Source> {
        let supers = path.iter().take_while(|part| *part == "super").count();
        let (start, rest) = match path[0].as_str() {
            "crate" => (&[][..], &path[1..]),
            "self" => (&source.module[..], &path[1..]),
            _ => (&source.module[..source.module.len().checked_sub(supers)?], &path[supers..]),
        };
        let start_len = start.len();
        let full: Vec<&String> = start.iter().chain(rest).collect();
        let is_local = supers > 0 || path[0] == "crate" || path[0] == "self";
        (start_len..=full.len()).rev().find_map(|length| {
            let found = self.sources.iter().find(|it| {
                it.package == source.package && it.module.iter().eq(full[..length].iter().copied())
            });
            found.filter(|it| is_local || it.module.len() > source.module.len())
        })
    }

    /// Circles of siblings, files or folders, at every level.
    fn circles(&self) -> Vec<String> {
        let mut folders: BTreeMap<(&str, &[String]), Needs<'_>> = BTreeMap::new();
        for source in &self.sources {
            for path in &source.paths {
                let Some(target) = self.module_of(source, path) else { continue };
                let shared = source.module.iter().zip(&target.module).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (source.module.get(shared), target.module.get(shared)) {
                    let folder = folders.entry((&source.package, &source.module[..shared])).or_default();
                    folder.entry(from).or_default().insert(to);
                    folder.entry(to).or_default();
                }
            }
        }
        let mut circles = Vec::new();
        for ((package, folder), mut needs) in folders {
            // A module without remaining dependencies or dependants is in no circle.
            loop {
                let before = needs.len();
                let left: BTreeSet<&str> = needs.keys().copied().collect();
                let needed: BTreeSet<&str> = needs.values().flatten().copied().collect();
                needs.retain(|name, targets| {
                    targets.retain(|target| left.contains(target));
                    !targets.is_empty() && needed.contains(name)
                });
                if needs.len() == before {
                    break;
                }
            }
            if !needs.is_empty() {
                let place: Vec<&str> =
                    std::iter::once(package).chain(folder.iter().map(String::as_str)).collect();
                let names: Vec<&str> = needs.into_keys().collect();
                circles.push(format!("{}: {}", place.join("::"), names.join(", ")));
            }
        }
        circles
    }
}

fn gather(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            gather(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}
