//! Settings of retention, and the cutoffs made of them.

use std::time::Duration;

use saga_core::decider::RetentionPolicy;
use saga_core::row::RowKind;
use saga_engine::host::retention::RetentionPeriod;
use saga_engine::host::settings::RetentionSettings;

use super::{file, read};
use crate::support::Shelf;

/// An inbox mark that is purged too early lets a message be processed twice; a key, an order be placed twice.
#[test]
fn cutoffs_follow_their_retention_settings() {
    let retention = RetentionSettings {
        inbox: Duration::from_hours(48),
        idempotency_key: Duration::from_hours(2),
        ..RetentionSettings::default()
    };
    let now: jiff::Timestamp = "2026-03-03T12:00:00Z".parse().expect("a time");
    let cutoffs = retention.cutoffs(now);
    assert_eq!(cutoffs.inbox.to_string(), "2026-03-01T12:00:00Z");
    assert_eq!(cutoffs.keys.to_string(), "2026-03-03T10:00:00Z");
    let unlimited = RetentionSettings { inbox: Duration::MAX, ..retention };
    assert_eq!(unlimited.cutoffs(now).inbox, jiff::Timestamp::MIN);
}

#[test]
fn retention_is_forever_or_longer_than_redelivery() {
    let retention = |flags: &[&str]| read("", flags).map(|settings| settings.retention);
    let defaults = retention(&[]).expect("the defaults");
    assert_eq!(
        (defaults.history, defaults.dead_letter.to_string().as_str()),
        (RetentionPeriod::Forever, "30days")
    );
    let now: jiff::Timestamp = "2026-03-03T12:00:00Z".parse().expect("a time");
    let week = Duration::from_hours(24 * 7);
    assert_eq!(defaults.purge_cutoffs(now, &[], week).history, jiff::Timestamp::MIN);
    let flags = ["retention.history=90d", "retention.dead_letter=forever", "retention.archive_period=day"];
    let settings = retention(&flags).expect("good settings");
    let of =
        |retention| settings.purge_cutoffs(now, &[RowKind { retention, ..RowKind::of::<Shelf>() }], week);
    for retention in [RetentionPolicy::Keep, RetentionPolicy::PurgeEvents, RetentionPolicy::PurgeRowsFirst] {
        assert_eq!(of(retention).history.to_string(), "2025-12-03T12:00:00Z", "{retention:?}");
    }
    let late = of(RetentionPolicy::PurgeRows);
    assert_eq!(
        late.history.to_string(),
        "2025-11-26T12:00:00Z",
        "other services may still ask for these rows"
    );
    assert_eq!(late.began.to_string(), "2025-11-26T12:01:00Z", "clocks differ");
    assert_eq!(late.dead_letters, jiff::Timestamp::MIN);
    for (flag, problem) in [
        (
            "retention.idempotency_key=100d",
            "retention.history must not be shorter than retention.idempotency_key",
        ),
        ("retention.history=7d", "retention.history must not be shorter than retention.inbox"),
        ("retention.dead_letter=1h", "retention.dead_letter must not be shorter than retention.inbox"),
        ("retention.inbox=6d", "retention.inbox must not be shorter than bus.retention"),
        ("retention.history=always", "\"always\" is neither \"forever\" nor a time"),
        ("retention.archive_period=year", "archive_period"),
        ("retention.chunk=0", "retention.chunk"),
    ] {
        let why = retention(&["retention.history=90d", flag]).expect_err(flag).to_string();
        assert!(why.contains(problem), "{flag}: {why}");
    }
}

#[test]
fn unwritable_archive_is_rejected_by_setting_name() {
    let (folder, file) = file("");
    let at = |path: &str| {
        let flag = format!("retention.archive={}", folder.path().join(path).display());
        read("", &[&flag]).expect("good settings").open_archive("till").map(|archive| archive.is_some())
    };
    assert!(at("archive/of the till").expect("a folder that is made"));
    let why = at(&format!("{}/x", file.display())).expect_err("below a file").to_string();
    assert!(why.contains("retention.archive") && why.contains("settings.toml"), "{why}");
    assert!(read("", &[]).expect("the defaults").open_archive("till").expect("none").is_none());
}
