//! Example `parcels`, run as a program, and the README's code compared with compiled code.

#[path = "../../examples/parcels/domain.rs"]
mod domain;

use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use saga_core::access::Access;
use saga_core::service::Service as _;
use saga_engine::host::app::Program;
use saga_engine::host::embedded::{self, Database};
use saga_engine::host::settings::{self, NoSettings, Sources};
use saga_engine::runtime::task_runner::NoTasks;
use saga_engine::testing::{NOON, ServiceUnderTest, Stimulus};
use tokio::process::Command;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use self::domain::{Courier, Depot, Fact, Parcel, ParcelCommand};
use crate::support::{Nats, in_time, wait_until};

/// Expected output, with the two dead letters in either order.
const STORY: [&str; 4] = [
    "Lyon: the line to the carrier went dead, it was asked again, and the parcel is on its van",
    "Utopia: the carrier does not go there, the parcel was cancelled and returned",
    "Oslo: the deadline passed, the place is still taken; dead letters: ",
    "Oslo: the carrier was mended, an operator replayed both, and the place was given back",
];

#[tokio::test]
async fn example_runs_twice_on_one_broker() {
    let broker = Nats::start().await;
    for run in ["the first run", "the second run, on the streams of the first"] {
        let (output, errors) = run_successfully(&broker.settings().url).await;
        let lines: Vec<_> = output.lines().collect();
        assert_eq!(lines.len(), STORY.len(), "{run}:\n{output}\n{errors}");
        for (line, expected) in lines.iter().zip(STORY) {
            assert!(line.starts_with(expected), "{run}: {line:?} is not {expected:?}");
        }
        for step in ["courier-booking", "courier-release"] {
            let dead = format!("{step} (the answer makes no sense)");
            assert!(lines[2].contains(&dead), "{run}: {:?} does not name {dead:?}", lines[2]);
        }
    }
}

#[tokio::test]
async fn example_without_broker_says_what_to_do() {
    let url = Nats::not_yet_started().settings().url;
    let output = run(&url).await;
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let expected = format!("no broker answers at {url}: start one with `nats-server --jetstream`");
    assert!(errors.contains(&expected), "{errors:?} does not say {expected:?}");
    assert_eq!(text(&output.stdout), "", "nothing came true");
}

/// Only the broker knows that the database has lost events.
#[tokio::test]
async fn embedded_service_rejects_foreign_database() -> anyhow::Result<()> {
    let broker = Nats::start().await;
    let bus = embedded::connect(&broker.settings().url, &[Depot::NAME, Courier::NAME, "operator"]).await?;
    let (own, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let start = async |database| embedded::start(Depot, Arc::new(NoTasks), database, &bus).await;

    let depot = start(Database::Existing(own.path())).await?;
    let deadline = Timestamp::now() + SignedDuration::from_hours(1);
    let command = (Uuid::from_u128(1), ParcelCommand::Book { to: "Lyon".to_owned(), deadline });
    depot.engine.execute(Uuid::from_u128(1), command, None).await?;
    let is_known = async || bus.last_position(Depot::NAME).await.is_ok_and(|position| position.is_some());
    wait_until("the broker knows of the booking", is_known).await;
    drop(depot);

    let Err(rejection) = start(Database::Existing(other.path())).await else { panic!("it was started") };
    assert!(rejection.to_string().contains("it is another one"), "{rejection}");
    start(Database::New(other.path())).await?;
    start(Database::Existing(own.path())).await?;
    Ok(())
}

#[test]
fn parcel_without_van_is_cancelled_at_deadline() {
    let parcel = Uuid::from_u128(1);
    let mut depot = ServiceUnderTest::of(Depot);
    let command = (parcel, ParcelCommand::Book { to: "Oslo".to_owned(), deadline: NOON });
    depot
        .takes(Stimulus::Command { id: Uuid::from_u128(2), saga: parcel, command, key: None })
        .publishes([Fact::ParcelBooked { parcel, to: "Oslo".to_owned() }]);
    depot
        .is_due::<Parcel>(parcel, NOON)
        .publishes([Fact::ParcelCancelled { parcel, why: "no van in time".to_owned() }]);
    // Too late.
    depot.receives(Fact::SlotBooked { parcel, slot: "a van".to_owned() }).changes_nothing();
    depot.receives(Fact::SlotReleased { parcel });
    assert_eq!(depot.row::<Parcel>(parcel), Parcel::Returned);
}

#[test]
fn unanswered_release_is_dead_lettered() {
    let (parcel, why) = (Uuid::from_u128(1), "no van in time".to_owned());
    let mut courier = ServiceUnderTest::of(Courier);
    courier.receives(Fact::ParcelCancelled { parcel, why }).calls(&["courier-release"]);
    courier
        .gives_up(&courier.open_task(), "the line went dead")
        .is_dead_lettered("courier-release", "the line went dead");
}

#[test]
fn readme_program_has_valid_settings() {
    let settings = settings::load::<NoSettings>("depot", program().defaults, &Sources::default());
    assert_eq!(settings.expect("settings").http.bind.to_string(), "127.0.0.1:8090");
}

fn program() -> Program<Depot, NoSettings> {
    let defaults = "http.bind = \"127.0.0.1:8090\"";
    Program {
        producers: vec!["depot", "courier", "operator"],
        ..Program::new(defaults, |_| Depot, |_| OpenApiRouter::new(), &Access::CLOSED)
    }
}

/// Each Rust block of the README is in the example or in this file; `// …` marks a gap.
#[test]
fn readme_quotes_compiled_code() {
    let code = [
        include_str!("../../examples/parcels/domain.rs"),
        include_str!("../../examples/parcels/main.rs"),
        include_str!("parcels.rs"),
    ]
    .map(trimmed);
    let readme = include_str!("../../README.md");
    let fragments: Vec<_> =
        readme.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(fragments.len() > 5, "the README has its code: {}", fragments.len());
    for piece in fragments.iter().flat_map(|fragment| fragment.split("// …\n")) {
        let expected = trimmed(piece);
        assert!(code.iter().any(|code| code.contains(&expected)), "nobody compiles this:\n{piece}");
    }
}

/// Strips the indentation of each line.
fn trimmed(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim())).collect()
}

/// Runs the example, and returns its output.
async fn run_successfully(url: &str) -> (String, String) {
    let output = run(url).await;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{stderr}");
    (stdout, stderr)
}

/// Runs the example with a time limit, because a hang must not block the tests.
async fn run(url: &str) -> Output {
    let mut command = Command::new(example());
    let output = command.arg(url).env("RUST_BACKTRACE", "0").kill_on_drop(true).output();
    in_time("the example ends", output).await.expect("the example starts")
}

/// Path of the built example, beside this test.
fn example() -> PathBuf {
    let this = std::env::current_exe().expect("a path");
    let built = this.ancestors().nth(2).expect("target/<profile>").join("examples/parcels");
    assert!(built.exists(), "no {}: cargo build -p saga-engine --example parcels", built.display());
    built
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
