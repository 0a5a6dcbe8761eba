//! Where admin looks for the other programs: at their own ports, or where its settings say.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use admin::program;
use admin::settings::{AdminSettings, ReconcileEvery};
use contract::topology::PARTICIPANTS;
use saga_engine::host::settings::{Sources, load};

/// What a file and flags make of the settings that are admin's alone; what it says when it refuses them.
fn settings(file: &str, flags: &[&str]) -> Result<AdminSettings, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("settings.toml");
    fs::write(&path, file).expect("a file");
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let settings = load("admin", program().defaults, &Sources { file: Some(path), flags });
    settings.map(|settings| settings.service).map_err(|error| error.to_string())
}

#[test]
fn every_other_program_is_at_its_own_port_unless_it_is_said_to_be_elsewhere() {
    let file = "[service]\norder = \"http://10.0.0.1:81\"\ninventory = \"http://10.0.0.2:82\"\n";
    let flags = ["service.order=http://10.0.0.3:83", "service.bank=http://10.0.0.4:84"];
    let addresses = settings(file, &flags).expect("settings").addresses;
    let seen = PARTICIPANTS.map(|participant| (participant.name, addresses.of(participant.name)));
    let wanted = [
        ("admin", None),
        ("order", Some("http://10.0.0.3:83")),
        ("inventory", Some("http://10.0.0.2:82")),
        ("payment", Some("http://127.0.0.1:8083")),
        ("bank", Some("http://10.0.0.4:84")),
    ];
    assert_eq!(seen, wanted);
}

#[test]
fn a_program_that_there_is_not_is_refused_by_name() {
    for name in ["shipping", "admin", "adresses", "require_operators"] {
        let refusals = [
            settings(&format!("[service]\n{name} = \"http://10.0.0.1:81\"\n"), &[]),
            settings("", &[&format!("service.{name}=http://10.0.0.1:81")]),
        ];
        for refusal in refusals {
            let said = refusal.expect_err("no such program");
            assert!(said.contains(&format!("service.{name}")), "{said:?} does not name {name}");
            assert_eq!(said.lines().count(), 1, "one line: {said:?}");
        }
    }
}

#[test]
fn the_books_are_looked_at_every_so_often_or_never() {
    let every = |flags: &[&str]| settings("", flags).map(|settings| settings.reconcile_every);
    assert_eq!(every(&[]), Ok(ReconcileEvery(Some(Duration::from_mins(15)))));
    assert_eq!(every(&["service.reconcile_every=90s"]), Ok(ReconcileEvery(Some(Duration::from_secs(90)))));
    assert_eq!(every(&["service.reconcile_every=off"]), Ok(ReconcileEvery(None)));
    for none in ["0s", "1ms", "often", ""] {
        let said = every(&[&format!("service.reconcile_every={none}")]).expect_err("no length of time");
        assert!(said.contains("service.reconcile_every"), "{said}");
    }
}

#[test]
fn everything_is_read_once_a_day_and_always_when_it_is_little() {
    let both = |flags: &[&str]| {
        settings("", flags)
            .map(|settings| (settings.full_verification_every, settings.full_verification_below))
    };
    assert_eq!(both(&[]), Ok((Duration::from_hours(24), 20_000)));
    let given = ["service.full_verification_every=1h", "service.full_verification_below=0"];
    assert_eq!(both(&given), Ok((Duration::from_hours(1), 0)));
    let said = both(&["service.full_verification_every=often"]).expect_err("no length of time");
    assert!(said.contains("full_verification_every"), "{said}");
}

/// They are read before anything binds, and what is wrong with a secret is said without it.
#[test]
fn a_receiver_of_notices_is_refused_that_cannot_be_one() {
    let of = |flags: &[&str]| {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let settings: saga_engine::host::settings::Settings<AdminSettings> =
            load("admin", program().defaults, &Sources { file: None, flags }).expect("settings");
        admin::notifications::webhook::handler(&settings.service.notifications)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let (url, secret) = (
        "service.notifications.webhook.url=https://x.example/hidden",
        "service.notifications.webhook.secret=",
    );
    let good = format!("{secret}whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    assert_eq!(of(&[]), Ok(()), "nobody need be told elsewhere than here");
    assert_eq!(of(&[url, &good]), Ok(()));
    for (flags, named) in [
        (&[url][..], "service.notifications.webhook.secret is missing"),
        (&[url, &format!("{secret}whsec_hidden")], "service.notifications.webhook.secret is invalid"),
        (
            &["service.notifications.webhook.url=hidden", &good],
            "service.notifications.webhook.url is not a URL",
        ),
        (
            &["service.notifications.webhook.url=ftp://x.example/hidden", &good],
            "service.notifications.webhook.url begins with ftp",
        ),
        (&["service.notifications.check_every=0s"], "service.notifications.check_every"),
    ] {
        let said = of(flags).expect_err("refused");
        assert!(said.contains(named) && !said.contains("hidden"), "{said}");
    }
    settings("", &["service.notifications.quite=1m"]).expect_err("no such setting");
    let shown = settings("", &[url, &good]).expect("settings");
    let shown = format!("{shown:?} {}", serde_json::to_string(&shown).expect("JSON"));
    assert!(!shown.contains("hidden") && !shown.contains("MfKQ9r8"), "{shown}");
}

/// What is in the environment others may see; a file is for its owner, and for a pod's group.
#[test]
fn the_secret_of_notices_may_lie_in_a_file_that_others_cannot_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    let of = |more: &[&str]| {
        let set = format!("service.notifications.webhook.secret_file={}", file.display());
        let own = ["service.notifications.webhook.url=https://x.example/hidden", &set];
        let flags = own.iter().chain(more);
        let flags = flags.map(|flag| (*flag).to_owned()).collect();
        let settings: saga_engine::host::settings::Settings<AdminSettings> =
            load("admin", program().defaults, &Sources { file: None, flags }).expect("settings");
        admin::notifications::webhook::handler(&settings.service.notifications)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let put = |text: &str, mode: u32| {
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    let refused = |more: &[&str], named: &str| {
        let said = of(more).expect_err("refused");
        assert!(said.contains("service.notifications.webhook.secret") && said.contains(named), "{said}");
        assert!(!said.contains("hidden") && !said.contains("MfKQ9r8"), "{said}");
    };
    refused(&[], "is not there: name the file");
    let good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n";
    put(good, 0o440);
    assert_eq!(of(&[]), Ok(()));
    refused(&["service.notifications.webhook.secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], "are both set");
    put(good, 0o644);
    refused(&[], "chmod 600");
    put("whsec_hidden", 0o600);
    refused(&[], "secret_file is invalid");
    put("", 0o600);
    refused(&[], "secret_file is missing");
}

/// A flag and the environment bring texts, a file brings what it is.
#[test]
fn whether_operators_must_say_who_they_are_may_be_said_in_a_file_or_with_a_flag() {
    let required = |file, flags| settings(file, flags).expect("settings").require_operator;
    assert!(!required("", &[]));
    assert!(required("[service]\nrequire_operator = true\n", &[]));
    assert!(required("", &["service.require_operator=true"]));
    assert!(!required("[service]\nrequire_operator = true\n", &["service.require_operator=false"]));
    settings("", &["service.require_operator=perhaps"]).expect_err("neither true nor false");
}

/// No dead letters are not many.
#[test]
fn a_bound_that_is_always_reached_is_refused() {
    let push = |flag| settings("", &[flag]).expect("settings").notifications;
    push("service.notifications.dead_letter_threshold=1").checked(None).expect("it can be used");
    let why = push("service.notifications.dead_letter_threshold=0")
        .checked(None)
        .expect_err("it is always reached");
    assert_eq!(why, "service.notifications.dead_letter_threshold must be 1 or more");
}
