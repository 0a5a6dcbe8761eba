//! Settings: sources, checks, and the runtime configuration made of them.

mod resilience;
mod retention;

use std::path::PathBuf;
use std::time::Duration;

use saga_core::breaker::BreakerPolicy;
use saga_engine::host::settings::{self, BadSettings, DbLocation, Settings, Sources};
use serde::Deserialize;
use tempfile::TempDir;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    #[serde(with = "humantime_serde")]
    deadline: Duration,
}

const DEFAULTS: &str = "[http]\nbind = \"127.0.0.1:8081\"\n[service]\ndeadline = \"60s\"\n";

const FILE: &str = r#"
[breaker]
minimum_calls = 4
window = { calls = 8 }

[resilience.supplier]
concurrency = 3
timeout = "250ms"
[resilience.supplier.breaker]
failure_rate = 100
minimum_calls = 2
open_for = "7s"
[resilience.supplier.retry]
max_attempts = 9

[resilience.shelf-filling.breaker]
window = { time = "30s" }
half_open_calls = 1
[resilience.shelf-filling.retry]
base = "1ms"
cap = "2ms"

[faults]
enabled = true
seed = 99
"#;

const STEPS: [&str; 2] = ["shelf-filling", "shelf-listening"];

/// Anybody who reaches a service without tokens could change it.
#[test]
fn service_beyond_loopback_without_tokens_is_rejected() {
    let with = |bind: &str, tokens: &str| read(&format!("[http]\nbind = {bind:?}\n{tokens}"), &[]);
    for open in
        ["0.0.0.0:8081", "[::]:8081", "192.0.2.7:8081", "shop.example:8081", "localhost.evil.example:1"]
    {
        let rejection = with(open, "").err().map(|bad| bad.to_string()).unwrap_or_default();
        assert!(rejection.contains("http.bind") && rejection.contains("http.tokens"), "{open}: {rejection}");
        assert!(rejection.contains("sagactl token create"), "{rejection}");
        assert!(with(open, "tokens = \"/tokens.json\"").is_ok(), "{open}");
    }
    for here in ["127.0.0.1:8081", "127.9.9.9:0", "[::1]:8081", "localhost:8081", "LocalHost:8081"] {
        assert!(with(here, "").is_ok(), "{here}");
    }
}

/// For networks that are protected otherwise, such as ports published on loopback alone.
#[test]
fn allow_unauthenticated_excludes_tokens_and_is_remarked() {
    let with = |more: &str| read(&format!("[http]\nbind = \"0.0.0.0:8081\"\n{more}"), &[]);
    let open = with("allow_unauthenticated = true").expect("good settings").http.remark();
    assert!(
        open.is_some_and(
            |text| text.contains("another machine") && text.contains("http.allow_unauthenticated")
        )
    );
    let both =
        with("allow_unauthenticated = true\ntokens = \"/tokens.json\"").err().map(|bad| bad.to_string());
    assert!(
        both.is_some_and(|why| why.contains("http.allow_unauthenticated") && why.contains("http.tokens"))
    );
    assert!(with("allow_unauthenticated = false").is_err());
    assert_eq!(with("tokens = \"/tokens.json\"").expect("good settings").http.remark(), None);
    let here = read("[http]\nbind = \"127.0.0.1:8081\"", &[]).expect("good settings").http.remark();
    assert!(
        here.is_some_and(|text| text.contains("authorization is off") && !text.contains("another machine"))
    );
}

#[test]
fn proxy_is_an_address_without_credentials() {
    let with = |proxy: &str| read(&format!("[http]\nbind = \"127.0.0.1:1\"\nproxy = {proxy:?}"), &[]);
    for good in ["http://proxy:3128", "https://proxy.example:3128", "http://127.0.0.1:1"] {
        assert_eq!(with(good).expect(good).http.proxy.as_deref(), Some(good));
    }
    for bad in ["", "proxy:3128", "ftp://proxy:1", "http://ada:secret@proxy:3128", "http://proxy:3128/path"] {
        let why = with(bad).err().map(|bad| bad.to_string()).unwrap_or_default();
        assert!(why.contains("http.proxy") && !why.contains("secret"), "{bad}: {why}");
    }
}

/// Flags override the file, member by member.
#[test]
fn flag_overrides_single_member_of_file() {
    let flags = ["resilience.supplier.breaker.open_for=1s", "resilience.supplier.concurrency=5"];
    let settings = read(FILE, &flags).expect("good settings");
    let policy = settings.breaker_of("supplier");
    assert_eq!((policy.open_for, policy.failure_rate), (Duration::from_secs(1), 100));
    assert_eq!(
        (
            settings.task_settings("supplier").concurrency,
            settings.task_settings("supplier").timeout.as_millis()
        ),
        (5, 250)
    );
}

/// A service without settings must start.
#[test]
fn defaults_pass_checks() {
    let settings = read("", &[]).expect("the defaults");
    settings.check_resilience(&STEPS, "supplier").expect("the defaults");
    assert!(!settings.faults.enabled);
    assert_eq!(settings.breaker_of("supplier"), BreakerPolicy::default());
}

#[test]
fn flags_override_defaults() {
    let settings = read("", &["service.deadline=5s", "engine.max_batch=8"]).expect("valid settings");
    assert_eq!((settings.service.deadline, settings.engine.max_batch), (Duration::from_secs(5), 8));
    assert_eq!(settings.http.bind, "127.0.0.1:8081");
}

#[test]
fn unknown_or_impossible_setting_is_rejected_by_name() {
    for (flag, named) in [
        ("engine.btach_max=8", "btach_max"),
        ("service.dedline=5s", "dedline"),
        ("service.deadline=soon", "deadline"),
        ("engine.max_batch=0", "engine.max_batch"),
        ("retention.inbox=1h", "retention.inbox"),
        ("retention.chunk=0", "retention.chunk"),
        ("retention.every=0s", "retention.every"),
        ("task.timeout=0s", "task.timeout"),
        ("bus.ack_wait=0s", "bus.ack_wait"),
        ("engine.queue=0", "engine.queue"),
        ("trace.endpoint=collector", "trace.endpoint is \"collector\", which is no URL"),
        (
            "trace.endpoint=grpc://localhost:4317",
            "trace.endpoint is \"grpc://localhost:4317\", which is no http",
        ),
        (
            "trace.endpoint=http://me:hidden@localhost:4318",
            "trace.endpoint has a user, a password or a query",
        ),
        ("trace.sample_ratio=1.5", "trace.sample_ratio is 1.5"),
        ("engine.timer_poll=0s", "engine.timer_poll"),
        ("http.max_requests=0", "http.max_requests"),
        ("http.timeout=0s", "http.timeout"),
        ("http.max_connections=0", "http.max_connections"),
        ("http.header_timeout=0s", "http.header_timeout"),
        ("http.body_timeout=0s", "http.body_timeout"),
        ("http.idle_timeout=0s", "http.idle_timeout"),
        ("http.write_timeout=0s", "http.write_timeout"),
        ("http.allowed_hosts=http://shop.example", "http.allowed_hosts"),
        ("http.allowed_hosts=shop.example:443", "http.allowed_hosts"),
        ("http.allowed_origins=shop.example", "http.allowed_origins"),
        ("http.allowed_origins=https://shop.example/", "http.allowed_origins"),
        ("instance=", "instance"),
        ("relay.poll=0s", "relay.poll"),
        ("relay.max_batch=0", "relay.max_batch"),
        ("clock.every=0s", "clock.every"),
        ("relay.lease=999ms", "relay.lease"),
        ("retry.max_attempts=0", "retry.max_attempts"),
        ("task.retry.max_attempts=0", "task.retry.max_attempts"),
        ("task.concurrency=0", "task.concurrency"),
        ("task.backlog=0", "task.backlog"),
        // A claim that lapses when its call does is taken twice.
        ("task.timeout=10s", "task.lease"),
        ("bus.pull_batch=0", "bus.pull_batch"),
        ("bus.max_ack_pending=0", "bus.max_ack_pending"),
        ("bus.max_pack=0", "bus.max_pack"),
        ("bus.retention=0s", "bus.retention"),
        ("bus.max_pack=1001", "bus.max_pack"),
        ("bus.max_deliveries=1", "bus.max_deliveries"),
        ("bus.publish_timeout=0s", "bus.publish_timeout"),
        ("bus.replicas=0", "bus.replicas"),
        ("bus.tls.cert=/client.pem", "bus.tls.key"),
        ("bus.tls.key=/client.key", "bus.tls.cert"),
        ("nonsense", "nonsense"),
    ] {
        let rejection = read("", &[flag]).expect_err(flag).to_string();
        assert!(rejection.contains(named), "{rejection}");
    }
}

/// A minimum that is too high would reject a working system.
#[test]
fn smallest_possible_values_are_accepted() {
    let flags = [
        "engine.max_batch=1",
        "engine.queue=1",
        "http.max_requests=1",
        "http.max_connections=1",
        "http.allowed_hosts=shop.example, 192.0.2.7,*",
        "http.allowed_origins=https://shop.example,http://localhost:3000",
        "relay.max_batch=1",
        "relay.lease=1s",
        "retry.max_attempts=1",
        "task.retry.max_attempts=1",
        "task.concurrency=1",
        "task.backlog=1",
        "task.timeout=9s",
        "bus.pull_batch=1",
        "bus.max_ack_pending=1",
        "bus.max_deliveries=2",
        "bus.replicas=1",
        "retention.chunk=1",
        "resilience.supplier.timeout=9s",
        "resilience.supplier.concurrency=1",
    ];
    let settings = read("", &flags).expect("the least");
    settings.check_resilience(&STEPS, "supplier").expect("the least");
    let as_long = format!("bus.retention={}s", settings.retention.inbox.as_secs());
    read("", &[&as_long]).expect("as long as the broker keeps facts");
    let longer = format!("bus.retention={}s", settings.retention.inbox.as_secs() + 1);
    assert!(read("", &[&longer]).expect_err("shorter than that").to_string().contains("retention.inbox"));
    for flag in [
        "resilience.supplier.timeout=0s",
        "resilience.supplier.timeout=2m",
        "resilience.supplier.concurrency=0",
        "resilience.shelf-filling.concurrency=1",
    ] {
        let settings = read("", &[flag]).expect("only the service knows what it has");
        assert!(settings.check_resilience(&STEPS, "supplier").is_err(), "{flag}");
    }
}

#[test]
fn retry_setting_overrides_single_member() {
    let file = "[retry]\nbase = \"1s\"\n[task.retry]\nmax_attempts = 2\n";
    let settings = read(file, &["retry.max_attempts=3"]).expect("good settings");
    let seconds = Duration::from_secs;
    assert_eq!(
        (settings.retry.max_attempts, settings.retry.base, settings.retry.cap),
        (3, seconds(1), seconds(30))
    );
    let task = settings.task.retry;
    assert_eq!((task.max_attempts, task.base, task.cap), (2, Duration::from_millis(200), seconds(10)));
}

/// Each setting reaches its place in the runtime.
#[test]
fn runtime_config_takes_every_setting() {
    let flags = [
        "instance=till-7",
        "engine.max_batch=11",
        "engine.queue=12",
        "engine.timer_poll=13s",
        "task.backlog=14",
        "task.lease=15m",
        "bus.pull_batch=16",
        "bus.max_ack_pending=17",
        "relay.max_batch=18",
        "retry.max_attempts=19",
        "store.check_within=20s",
        "store.accept_loss=some",
        "store.max_connections=21",
        "store.url=sqlite:///somewhere/till.db",
    ];
    let settings = read(FILE, &flags).expect("good settings");
    let runtime_config = settings.runtime_config("supplier");
    assert_eq!((&runtime_config.decision.owner[..], runtime_config.decision.use_inbox), ("till-7", true));
    assert_eq!(runtime_config.decision.task_lease, jiff::SignedDuration::from_mins(15));
    assert_eq!(
        (runtime_config.decision.retry.max_attempts, runtime_config.decision.task_retry.max_attempts),
        (19, 9)
    );
    assert!(runtime_config.decision.step_retry.contains_key("shelf-filling"));
    assert_eq!((runtime_config.engine.max_batch, runtime_config.engine.queue), (11, 12));
    assert_eq!((runtime_config.tasks.backlog, runtime_config.tasks.concurrency), (14, 3));
    assert_eq!(
        (runtime_config.call_timeout, runtime_config.engine.timer_poll),
        (Duration::from_millis(250), Duration::from_secs(13))
    );
    assert_eq!(
        (
            runtime_config.relay.max_batch,
            runtime_config.consumer.pull_batch,
            runtime_config.consumer.max_in_flight
        ),
        (18, 16, 17)
    );
    let opening = settings.open_options("till");
    assert_eq!(
        (opening.service, opening.check_within, opening.accept_loss, opening.max_connections),
        ("till", Duration::from_secs(20), "some", 21)
    );
    assert_eq!(
        (opening.instance, opening.wait),
        (settings.instance.as_str(), settings.store.connect_timeout)
    );
    assert_ne!((opening.instance, opening.wait), ("", Duration::ZERO));
    let DbLocation::File(path) = settings.store.location().expect("a place") else { panic!("it is a file") };
    assert_eq!(path, PathBuf::from("/somewhere/till.db"));
    for (url, why) in [
        ("sqlite:", "sqlite:PATH"),
        ("mysql://till@db.example/till", "mysql://"),
        ("postgres://db.example/till", "names no user"),
        ("postgres://till@db.example", "names no database"),
    ] {
        let settings = read("", &[&format!("store.url={url}")]).expect("read, and not opened");
        let text = settings.store.location().expect_err(url).to_string();
        assert!(text.contains("store.url") && text.contains(why), "{url}: {text}");
    }
    let shared = read("", &["store.url=postgres://till:secret@db.example/till"]).expect("read");
    let DbLocation::Server(index) = shared.store.location().expect("a place") else {
        panic!("it is on a server")
    };
    assert_eq!(index.to_string(), "postgres://till@db.example:5432/till");
    let errors = serde_json::to_string(&shared.store).expect("settings have a JSON form");
    assert!(!errors.contains("secret") && errors.contains("till:***@db.example"), "{errors}");
    for url in ["postgres://till:se@cret@db.example/till", "postgres://till@db.example/till?password=cret"] {
        let shown = read("", &[&format!("store.url={url}")]).expect("read").store.shown_url();
        assert!(!shown.contains("cret") && shown.ends_with("@db.example/till"), "{shown}");
    }
    let defaults = read("", &[]).expect("the defaults");
    assert_eq!((defaults.retry.max_attempts, defaults.retry.cap), (8, Duration::from_secs(30)));
}

fn read(text: &str, flags: &[&str]) -> Result<Settings<Own>, BadSettings> {
    let (_folder, file) = file(text);
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    settings::load("unnamed", DEFAULTS, &Sources { file: Some(file), flags })
}

fn file(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("settings.toml");
    std::fs::write(&path, text).expect("the file");
    (folder, path)
}

#[test]
fn allowed_hosts_are_read_as_list_or_with_commas() {
    let of = |file: &str, flags: &[&str]| read(file, flags).expect("settings").http.allowed_hosts;
    assert_eq!(of("[http]\nallowed_hosts = [\"a.example\", \"b\"]\n", &[]), ["a.example", "b"]);
    assert_eq!(of("", &["http.allowed_hosts= a.example, b,"]), ["a.example", "b"]);
    assert!(of("", &[]).is_empty());
}
