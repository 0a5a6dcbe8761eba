//! Pure: settings of admin: defaults, limits and errors.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use admin::program;
use admin::settings::{AdminSettings, ReconcileEvery};
use contract::topology::PARTICIPANTS;
use saga_engine::host::settings::{Sources, load};

/// Settings from a file and flags, or the error.
fn settings(file: &str, flags: &[&str]) -> Result<AdminSettings, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("settings.toml");
    fs::write(&path, file).expect("a file");
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let settings = load("admin", program().defaults, &Sources { file: Some(path), flags });
    settings.map(|settings| settings.service).map_err(|error| error.to_string())
}

#[test]
fn addresses_default_to_the_ports_of_the_topology() {
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
fn address_of_unknown_service_is_rejected() {
    for name in ["shipping", "admin", "adresses", "require_operators"] {
        let refusals = [
            settings(&format!("[service]\n{name} = \"http://10.0.0.1:81\"\n"), &[]),
            settings("", &[&format!("service.{name}=http://10.0.0.1:81")]),
        ];
        for refusal in refusals {
            let problem = refusal.expect_err("no such program");
            assert!(problem.contains(&format!("service.{name}")), "{problem:?} does not name {name}");
            assert_eq!(problem.lines().count(), 1, "one line: {problem:?}");
        }
    }
}

#[test]
fn reconciliation_interval_is_a_duration_or_off() {
    let every = |flags: &[&str]| settings("", flags).map(|settings| settings.reconcile_every);
    assert_eq!(every(&[]), Ok(ReconcileEvery(Some(Duration::from_mins(15)))));
    assert_eq!(every(&["service.reconcile_every=90s"]), Ok(ReconcileEvery(Some(Duration::from_secs(90)))));
    assert_eq!(every(&["service.reconcile_every=off"]), Ok(ReconcileEvery(None)));
    for none in ["0s", "1ms", "often", ""] {
        let problem = every(&[&format!("service.reconcile_every={none}")]).expect_err("no length of time");
        assert!(problem.contains("service.reconcile_every"), "{problem}");
    }
}

#[test]
fn full_verification_has_defaults() {
    let both = |flags: &[&str]| {
        settings("", flags)
            .map(|settings| (settings.full_verification_every, settings.full_verification_below))
    };
    assert_eq!(both(&[]), Ok((Duration::from_hours(24), 20_000)));
    let given = ["service.full_verification_every=1h", "service.full_verification_below=0"];
    assert_eq!(both(&given), Ok((Duration::from_hours(1), 0)));
    let problem = both(&["service.full_verification_every=often"]).expect_err("no length of time");
    assert!(problem.contains("full_verification_every"), "{problem}");
}

#[test]
fn invalid_webhook_settings_are_rejected() {
    let of = |flags: &[&str]| {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let settings: saga_engine::host::settings::Settings<AdminSettings> =
            load("admin", program().defaults, &Sources { file: None, flags }).expect("settings");
        admin::notifications::webhook::handler(&settings.service.notifications, &settings.http)
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
        let problem = of(flags).expect_err("refused");
        assert!(problem.contains(named) && !problem.contains("hidden"), "{problem}");
    }
    settings("", &["service.notifications.quite=1m"]).expect_err("no such setting");
    let shown = settings("", &[url, &good]).expect("settings");
    let shown = format!("{shown:?} {}", serde_json::to_string(&shown).expect("JSON"));
    assert!(!shown.contains("hidden") && !shown.contains("MfKQ9r8"), "{shown}");
}

#[test]
fn webhook_secret_file_must_be_private() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    let of = |more: &[&str]| {
        let set = format!("service.notifications.webhook.secret_file={}", file.display());
        let own = ["service.notifications.webhook.url=https://x.example/hidden", &set];
        let flags = own.iter().chain(more);
        let flags = flags.map(|flag| (*flag).to_owned()).collect();
        let settings: saga_engine::host::settings::Settings<AdminSettings> =
            load("admin", program().defaults, &Sources { file: None, flags }).expect("settings");
        admin::notifications::webhook::handler(&settings.service.notifications, &settings.http)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let put = |text: &str, mode: u32| {
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    let rejected = |more: &[&str], named: &str| {
        let problem = of(more).expect_err("refused");
        assert!(
            problem.contains("service.notifications.webhook.secret") && problem.contains(named),
            "{problem}"
        );
        assert!(!problem.contains("hidden") && !problem.contains("MfKQ9r8"), "{problem}");
    };
    rejected(&[], "is not there: name the file");
    let good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n";
    put(good, 0o440);
    assert_eq!(of(&[]), Ok(()));
    rejected(
        &["service.notifications.webhook.secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "are both set",
    );
    put(good, 0o644);
    rejected(&[], "chmod 600");
    put("whsec_hidden", 0o600);
    rejected(&[], "is invalid");
    put("", 0o600);
    rejected(&[], "is missing");
}

#[test]
fn require_operator_is_set_by_file_or_flag() {
    let required = |file, flags| settings(file, flags).expect("settings").require_operator;
    assert!(!required("", &[]));
    assert!(required("[service]\nrequire_operator = true\n", &[]));
    assert!(required("", &["service.require_operator=true"]));
    assert!(!required("[service]\nrequire_operator = true\n", &["service.require_operator=false"]));
    settings("", &["service.require_operator=perhaps"]).expect_err("neither true nor false");
}

#[test]
fn dead_letter_threshold_of_zero_is_rejected() {
    let push = |flag| settings("", &[flag]).expect("settings").notifications;
    push("service.notifications.dead_letter_threshold=1").check().expect("it can be used");
    let why =
        push("service.notifications.dead_letter_threshold=0").check().expect_err("it is always reached");
    assert_eq!(why, "service.notifications.dead_letter_threshold must be 1 or more");
}
