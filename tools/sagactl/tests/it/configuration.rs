//! Shell: `docs/configuration.md` lists every setting: its doc comment, read from the sources, and its default, asked of
//! the services.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use contract::topology::PARTICIPANTS;
use serde_json::Value;
use syn::{Attribute, Expr, ExprLit, Field, Item, ItemStruct, Lit, Meta, Type};

use crate::system::{programs, workspace};

/// The struct that holds all settings.
const ROOT: &str = "Settings";
/// Run the test with this variable set to write the page.
const UPDATE: &str = "CONFIGURATION_UPDATE";

const HEAD: &str = "# Configuration\n\n\
Built-in defaults → TOML file (`--config FILE`) → environment (`ORDER__BUS__URL`) → flags (`--set bus.url=…`). Later sources \
win. All settings are parsed before anything starts; an unknown or impossible one is an error that names the key.\n\n\
`order settings` prints the settings that `order` would run with; secrets are not shown. With `sagactl up`, write `--set \
order.bus.url=…`.\n\n\
Durations are written `250ms`, `30s`, `5m`. A default that differs between services is listed for each.\n\n\
This page is generated from the doc comments and defaults in the code by `CONFIGURATION_UPDATE=1 cargo test -p sagactl \
configuration`.\n";

#[test]
fn configuration_page_lists_every_setting_with_its_default() {
    let page = page();
    let path = workspace().join("docs/configuration.md");
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, &page).expect("the page is written");
    }
    let stored = fs::read_to_string(&path).expect("docs/configuration.md");
    assert!(
        page == stored,
        "docs/configuration.md is out of date: run {UPDATE}=1 cargo test -p sagactl configuration"
    );
}

fn page() -> String {
    let structs = Structs::read(&workspace());
    let defaults: BTreeMap<&str, Value> =
        PARTICIPANTS.iter().map(|service| (service.name, defaults_of(service.name))).collect();
    let mut sections = Sections::default();
    structs.walk(ROOT, "", &mut sections);
    for service in PARTICIPANTS.map(|service| service.name) {
        let mut own = Sections::default();
        structs.walk(&struct_of(service), "service.", &mut own);
        let entries = own.0.into_values().flatten().collect();
        sections.0.insert(format!("service ({service})"), entries);
    }
    let mut page = HEAD.to_owned();
    for (section, entries) in &sections.0 {
        let title = if section.is_empty() { "general" } else { section };
        write!(page, "\n## {title}\n\n| key | default | meaning |\n| --- | --- | --- |\n")
            .expect("a text grows");
        for Entry { key, doc } in entries {
            let owner = section.strip_prefix("service (").and_then(|owner| owner.strip_suffix(')'));
            let of: Vec<_> =
                defaults.iter().filter(|(name, _)| owner.is_none_or(|it| it == **name)).collect();
            writeln!(page, "| `{key}` | {} | {doc} |", shown_default(key, &of)).expect("a text grows");
        }
    }
    page
}

/// The struct of the settings that only this service has, such as `OrderSettings`.
fn struct_of(service: &str) -> String {
    let (first, rest) = service.split_at(1);
    format!("{}{rest}Settings", first.to_uppercase())
}

/// Settings of `service` without any configuration.
fn defaults_of(service: &str) -> Value {
    let output =
        Command::new(programs().join(service)).arg("settings").env_clear().output().expect("it runs");
    assert!(output.status.success(), "{service}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Default of `key`: one text if all services agree, else one for each.
fn shown_default(key: &str, services: &[(&&str, &Value)]) -> String {
    let at = |settings: &Value| key.split('.').try_fold(settings.clone(), |at, part| at.get(part).cloned());
    let mut by_value: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (service, settings) in services {
        by_value
            .entry(at(settings).map_or_else(String::new, |value| in_words(&value)))
            .or_default()
            .push(service);
    }
    let most = by_value.iter().max_by_key(|(_, services)| services.len()).map(|(value, _)| value.clone());
    let most = most.unwrap_or_default();
    let others = by_value.iter().filter(|(value, _)| **value != most);
    let others: Vec<_> =
        others.map(|(value, services)| format!("{}: {value}", services.join(", "))).collect();
    match others.is_empty() {
        true => most,
        false if by_value.values().all(|services| services.len() == 1) => by_value
            .iter()
            .map(|(value, services)| format!("{}: {value}", services[0]))
            .collect::<Vec<_>>()
            .join("; "),
        false => format!("{most}; {}", others.join("; ")),
    }
}

fn in_words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.is_empty() => String::new(),
        Value::String(text) => format!("`{text}`"),
        Value::Array(items) if items.is_empty() => String::new(),
        Value::Object(members) if members.is_empty() => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => format!("`{value}`"),
    }
}

struct Entry {
    key: String,
    doc: String,
}

/// Entries by the section of the settings file that they belong to.
#[derive(Default)]
struct Sections(BTreeMap<String, Vec<Entry>>);

/// Every struct of the sources, by name.
struct Structs(BTreeMap<String, ItemStruct>);

impl Structs {
    fn read(root: &Path) -> Self {
        let mut structs = BTreeMap::new();
        for folder in ["shared", "services"] {
            collect(&root.join(folder), &mut structs);
        }
        Self(structs)
    }

    /// Adds the fields of the struct `name`, whose keys begin with `prefix`, and of the structs in them.
    fn walk(&self, name: &str, prefix: &str, sections: &mut Sections) {
        let found = self.0.get(name).unwrap_or_else(|| panic!("no struct {name}"));
        for field in &found.fields {
            let ident = field.ident.as_ref().expect("a named field").to_string();
            let is_flat = has_serde(&field.attrs, "flatten");
            let key = if is_flat { prefix.to_owned() } else { format!("{prefix}{}", renamed(field, &ident)) };
            if ident == "service" && prefix.is_empty() {
                continue;
            }
            match inner_struct(&field.ty).filter(|inner| self.is_section(inner)) {
                Some(inner) => {
                    let below = if is_flat { prefix.to_owned() } else { format!("{key}.") };
                    self.walk(&inner, &below, sections);
                }
                None if is_flat => {}
                None => {
                    let section = key.rsplit_once('.').map_or("", |(section, _)| section).split('.').next();
                    let entries = sections.0.entry(section.unwrap_or_default().to_owned()).or_default();
                    entries.push(Entry { key, doc: doc_of(&field.attrs) });
                }
            }
        }
    }

    /// True for a struct that is a section: it has named fields and no text form of its own.
    fn is_section(&self, name: &str) -> bool {
        let found = self.0.get(name);
        found.is_some_and(|found| {
            found.fields.iter().all(|field| field.ident.is_some()) && !has_serde(&found.attrs, "try_from")
        })
    }
}

fn collect(folder: &Path, structs: &mut BTreeMap<String, ItemStruct>) {
    let entries: BTreeSet<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    for path in entries {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests" && name != "target") {
            collect(&path, structs);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = syn::parse_file(&fs::read_to_string(&path).expect("a source")).expect("Rust");
            for item in source.items {
                if let Item::Struct(found) = item
                    && found.attrs.iter().any(|attribute| derives(attribute, "Deserialize"))
                {
                    structs.insert(found.ident.to_string(), found);
                }
            }
        }
    }
}

fn derives(attribute: &Attribute, name: &str) -> bool {
    let mut found = false;
    if attribute.path().is_ident("derive") {
        let _ = attribute.parse_nested_meta(|meta| {
            found |= meta.path.is_ident(name);
            Ok(())
        });
    }
    found
}

/// True if `#[serde(…)]` has this word.
fn has_serde(attributes: &[Attribute], word: &str) -> bool {
    let text = |attribute: &Attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("serde") => list.tokens.to_string(),
        Meta::List(_) | Meta::Path(_) | Meta::NameValue(_) => String::new(),
    };
    attributes.iter().any(|attribute| {
        text(attribute).split(|c: char| !c.is_alphanumeric() && c != '_').any(|it| it == word)
    })
}

/// Key of a field: its name, unless serde renames it.
fn renamed(field: &Field, ident: &str) -> String {
    let mut name = ident.strip_prefix("r#").unwrap_or(ident).to_owned();
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        // Words of serde that do not parse this way are none that rename.
        let _ = attribute.parse_nested_meta(|meta| {
            if let Ok(value) = meta.value()
                && let Ok(text) = value.parse::<syn::LitStr>()
                && meta.path.is_ident("rename")
            {
                name = text.value();
            }
            Ok(())
        });
    }
    name
}

/// Last name of a type, or of the content of an `Option`.
fn inner_struct(of: &Type) -> Option<String> {
    let Type::Path(path) = of else { return None };
    let last = path.path.segments.last()?;
    if last.ident == "Option"
        && let syn::PathArguments::AngleBracketed(arguments) = &last.arguments
        && let Some(syn::GenericArgument::Type(inner)) = arguments.args.first()
    {
        return inner_struct(inner);
    }
    Some(last.ident.to_string())
}

/// Doc comment in one line that fits a table.
fn doc_of(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { return None };
        pair.path.is_ident("doc").then(|| text.value().trim().to_owned())
    });
    plain(&lines.collect::<Vec<_>>().join(" ")).replace('|', "\\|")
}

/// Text without links to items: `[`name`](path)` and `[`name`]` become `name` in code.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("[`") {
        let Some(end) = rest[start..].find("`]").map(|end| start + end) else { break };
        out.push_str(&rest[..start]);
        out.push_str(&rest[start + 1..=end]);
        rest = &rest[end + 2..];
        if rest.starts_with('(') {
            rest = rest.find(')').map_or(rest, |close| &rest[close + 1..]);
        }
    }
    out.push_str(rest);
    out.trim().to_owned()
}
