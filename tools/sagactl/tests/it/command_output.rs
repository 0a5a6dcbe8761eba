//! Shell: output of every command and API: no Rust debug output, and one shape of lists.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::operator::{LONG_DEADLINE, STEP, UNKNOWN_ID};
use crate::system::System;

/// Finds Rust `Debug` output in a text.
fn debug_in(text: &str) -> Option<String> {
    let words = ["Some(", "Err(", "Ok("].into_iter().find(|word| text.contains(word)).map(str::to_owned);
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let none = text.split(|character| !is_part(character)).find(|word| *word == "None");
    // A struct: a name that begins with a capital, and an open brace.
    let named = text.split(" { ").collect::<Vec<_>>();
    let named =
        named.iter().rev().skip(1).filter_map(|before| before.rsplit(|character| !is_part(character)).next());
    let mut named = named.filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase()));
    words.or_else(|| none.map(str::to_owned)).or_else(|| named.next().map(|name| format!("{name} {{ ")))
}

#[test]
fn debug_output_is_recognised() {
    for bad in ["is Some(7)", "of None, twice", "Err(x)", "a Stock { sku: 1 }"] {
        assert!(debug_in(bad).is_some(), "{bad}");
    }
    for good in ["None of", "nothing", "{\"a\": { }", "Nonesuch", "a { b", "1.5s"].into_iter().skip(1) {
        assert_eq!(debug_in(good), None, "{good}");
    }
}

/// Runs commands, and records them.
struct Reader<'a> {
    system: &'a System,
    read: Vec<String>,
}

impl Reader<'_> {
    /// Runs a command, asserts its exit code, and returns its output.
    #[track_caller]
    fn run(&mut self, line: &str, code: i32) -> String {
        let words: Vec<_> = line.split(' ').collect();
        let output = self.system.try_sagactl(&words);
        let [out, errors] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert_eq!(output.status.code(), Some(code), "sagactl {line}:\n{out}\n{errors}");
        for text in [&out, &errors] {
            assert_eq!(debug_in(text), None, "sagactl {line}:\n{text}");
        }
        self.read.push(line.to_owned());
        out
    }

    /// Runs a list, as text and as JSON.
    #[track_caller]
    fn list(&mut self, line: &str) {
        self.run(line, 0);
        let list: Value = serde_json::from_str(&self.run(&format!("{line} --json"), 0)).expect("JSON");
        assert!(list["items"].is_array() && list.get("next").is_some(), "{line}: {list:#}");
    }
}

/// Lists without arguments.
const LISTS: [&str; 14] = [
    "dlq list",
    "dlq groups",
    "saga list",
    "breakers",
    "breakers list",
    "faults",
    "faults list",
    "faults kinds",
    "outbox",
    "outbox list",
    "notifications",
    "notifications list",
    "log",
    "log list",
];

/// Fails for commands that are in the manual but not run here, and for lists of another shape.
#[tokio::test]
async fn commands_print_no_debug_output_and_lists_share_one_shape() {
    let system = System::start(&[LONG_DEADLINE]);
    system.list("pen", 20).await;
    let orders = system.dead_letter_orders(3).await;
    let mut reader = Reader { system: &system, read: vec![] };
    for list in LISTS {
        reader.list(list);
    }
    // Dead letters need a human.
    for line in ["status", "status --json", "doctor", "doctor --json", "top --once", "top --once --json"] {
        reader.run(line, 5);
    }
    let letters = system.sagactl_json(&["dlq", "list"]);
    let letter = |at: usize| letters["items"][at]["id"].as_str().expect("an id").to_owned();
    let lines = [
        format!("saga show {}", orders[0]),
        format!("saga extend {} --for 10m --reason x", orders[0]),
        "dlq count".to_owned(),
        format!("dlq show {}", letter(0)),
        format!("dlq note {} asked", letter(0)),
        format!("dlq discard {} --reason x", letter(0)),
        format!("dlq restore {}", letter(0)),
        format!("dlq edit {} --reason x --payload {{}}", letter(0)),
        format!("dlq resolve {} --reason cheque", letter(2)),
        format!("dlq withdraw-resolution {} --reason bounced", letter(2)),
        format!("dlq replay {}", letter(1)),
        format!("dlq redrive --step {STEP} --preview"),
        format!("breakers open payment/{STEP} --reason x"),
        format!("breakers close payment/{STEP} --reason x"),
        format!("breakers reset payment/{STEP}"),
        "faults inject bank bank_latency --delay 1ms".to_owned(),
        "faults clear bank".to_owned(),
        "outbox retry order --reason x".to_owned(),
        "outbox republish order --since 1h --reason x".to_owned(),
        "notifications test --reason x".to_owned(),
    ];
    for line in &lines {
        // An empty envelope is rejected, in words.
        let code = if line.starts_with("dlq edit") { 2 } else { 0 };
        let shown = reader.run(&format!("{line} --json"), code);
        assert!(
            code > 0 || serde_json::from_str::<Value>(&shown).is_ok_and(|answer| answer.is_object()),
            "{line}: {shown}"
        );
        if code == 0 && !line.starts_with("dlq") {
            reader.run(line, 0);
        }
    }
    reader.run_resolutions_and_tokens(&system);
    system.sagactl(&["faults", "inject", "payment", "pause", "--step", STEP]);
    let started = system.sagactl_json(&["dlq", "redrive", "--step", STEP, "--reason", "x", "--detach"]);
    let redrive = started["id"].as_str().expect("an id").to_owned();
    reader.list("redrive list");
    for (line, code) in [
        (format!("redrive show {redrive}"), 0),
        (format!("redrive pause {redrive}"), 0),
        (format!("redrive resume {redrive}"), 0),
        (format!("redrive cancel {redrive} --reason x --json"), 0),
        (format!("redrive follow {redrive}"), 2),
        (format!("redrive show {UNKNOWN_ID}"), 4),
        // Its charge was dead-lettered before a payment began.
        (format!("payment show {}", orders[0]), 4),
        ("notifications acknowledge nope --for 1m --reason x".to_owned(), 4),
        ("faults clear".to_owned(), 0),
        ("stop bank".to_owned(), 0),
        ("rebuild bank nope".to_owned(), 4),
        ("rebuild nats x".to_owned(), 2),
        ("rebuild admin saga".to_owned(), 2),
        ("start bank --within 30s".to_owned(), 0),
        ("kill bank".to_owned(), 0),
        ("kill bank".to_owned(), 2),
        // Its screen needs a terminal.
        ("top".to_owned(), 2),
        ("top --json".to_owned(), 2),
        ("start bank".to_owned(), 0),
        ("up --detach".to_owned(), 3),
        ("load --rest 1".to_owned(), 1),
        ("load --clients 1 --duration 100ms --drain 1s".to_owned(), 1),
        ("reconcile --wait 0s".to_owned(), 2),
        ("reconcile --accept nope --reason x".to_owned(), 2),
        // It starts a system of its own; that it rejects in words is enough here.
        ("chaos --for 1s".to_owned(), 2),
        ("completions bash".to_owned(), 0),
    ] {
        // Orders wait for a human here, so reconciliation has no verdict and a load run fails.
        if line.starts_with("load") || line.starts_with("reconcile --wait") {
            let output = system.try_sagactl(&line.split(' ').collect::<Vec<_>>());
            assert_eq!(debug_in(&String::from_utf8_lossy(&output.stdout)), None, "{line}");
            reader.read.push(line);
        } else {
            reader.run(&line, code);
        }
    }
    assert_apis_print_no_debug_output(&system).await;
    let manual = system.path().join("man");
    reader.run(&format!("man {}", manual.display()), 0);
    reader.run("seed", 0);
    reader.run("seed --by-name", 1);
    reader.run(&format!("credentials {}", system.path().join("secrets").display()), 0);
    reader.run("down", 0);
    let missing: Vec<_> = leaves(&manual).into_iter().filter(|leaf| !reader.has_run(leaf)).collect();
    assert_eq!(missing, [""; 0], "commands that are not run here");
}

impl Reader<'_> {
    /// Runs manual resolutions and token commands.
    fn run_resolutions_and_tokens(&mut self, system: &System) {
        // Unknown orders are rejected in words.
        for line in [
            format!("saga resolve {UNKNOWN_ID} --reason x"),
            format!("saga withdraw-resolution {UNKNOWN_ID} --reason x"),
            format!("payment resolve {UNKNOWN_ID} --reason x"),
            format!("payment withdraw-resolution {UNKNOWN_ID} --reason x"),
        ] {
            self.run(&line, 4);
        }
        let tokens = system.path().join("its-tokens");
        self.run(&format!("token create ada --role viewer --file {}", tokens.display()), 0);
        self.list(&format!("token list --file {}", tokens.display()));
        self.run(&format!("token revoke ada --file {}", tokens.display()), 0);
        self.run(&format!("token revoke ada --file {}", tokens.display()), 4);
    }

    fn has_run(&self, leaf: &str) -> bool {
        // A page's name has a hyphen for each space of the command, and its own hyphens.
        let spaced = |line: &String| format!("{} ", line.replace('-', " "));
        self.read.iter().any(|line| spaced(line).starts_with(&format!("{leaf} ")))
    }
}

/// Commands without subcommands, from the names of the manual pages: `sagactl-dlq-list.1`.
fn leaves(manual: &std::path::Path) -> BTreeSet<String> {
    let pages = fs::read_dir(manual).expect("the manual").map(|page| page.expect("a page").file_name());
    let names = pages.map(|name| name.into_string().expect("text").trim_end_matches(".1").to_owned());
    let names: BTreeSet<String> = names.filter(|name| !name.contains("help")).collect();
    let has_none_below = |name: &&String| !names.iter().any(|other| other.starts_with(&format!("{name}-")));
    let words = |name: &String| name.trim_start_matches("sagactl-").replace('-', " ");
    let leaves: BTreeSet<_> = names.iter().filter(has_none_below).map(words).collect();
    assert!(leaves.len() > 35 && leaves.contains("dlq list"), "{leaves:?}");
    leaves
}

/// True for a route whose `GET` has an answer that ends: no stream of events.
pub fn is_read(methods: &Value) -> bool {
    let content = &methods["get"]["responses"]["200"]["content"];
    methods.get("get").is_some() && content.get("text/event-stream").is_none()
}

/// Sends every `GET` that needs no known id to every program, and some invalid orders.
async fn assert_apis_print_no_debug_output(system: &System) {
    for program in ["admin", "order", "inventory", "payment", "bank"] {
        let description = system.get(program, "/openapi.json").await;
        let paths = description["paths"].as_object().expect("paths").clone();
        let mut asked = 0;
        for (path, _) in paths.iter().filter(|(_, methods)| is_read(methods)) {
            let path = path.replace("{id}", "nope").replace("{sku}", "nope").replace("{service}", "nope");
            for query in ["", "?limit=x", "?nope=1"] {
                let answer = system.http.get(system.url(program, &format!("{path}{query}"))).send().await;
                let text = answer.expect("an answer").text().await.expect("text");
                assert_eq!(debug_in(&text), None, "{program} {path}{query}: {text}");
                asked += 1;
            }
        }
        assert!(asked > 3, "{program} has {asked} routes");
    }
    let wrong = [json!({}), json!({"customer": 7}), json!([])];
    for body in wrong {
        let answer = system.post("order", "/api/orders").json(&body).send().await.expect("an answer");
        let text = answer.text().await.expect("text");
        assert_eq!(debug_in(&text), None, "{body}: {text}");
    }
}
