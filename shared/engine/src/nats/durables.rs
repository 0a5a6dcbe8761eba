//! Shell: durable consumers at the broker: created, updated to the settings, and put right where somebody changed them.
//!
//! Each records in its metadata which subjects its build declared. A consumer with other subjects than it records was
//! changed by hand, and may have skipped messages: it starts over, and the inbox recognises what was processed. One that
//! another build has declared keeps its position.

use std::collections::BTreeSet;

use async_nats::jetstream::consumer::{self, AckPolicy, Consumer, DeliverPolicy, pull};
use futures::future::BoxFuture;
use tracing::warn;

use super::connection::{BoxedError, NatsBus};
use super::pull_requests::PullConsumer;

/// Metadata with the declared subjects, sorted and separated by commas.
const DECLARED: &str = "saga-subjects";

/// Difference of a consumer at the broker from its declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Difference {
    /// Declared by another build. An update keeps its position.
    Outdated,
    /// Changed by hand, as described. It may have skipped messages.
    Altered(String),
}

/// Creates a durable consumer, or updates it to the settings. Creates one anew that may have skipped messages.
pub(super) fn ensure<'a>(
    bus: &'a NatsBus,
    stream: &'a str,
    config: pull::Config,
) -> BoxFuture<'a, Result<PullConsumer, BoxedError>> {
    Box::pin(async move {
        let config = recorded(config);
        let name = config.durable_name.as_deref().unwrap_or_default();
        if let Some(Difference::Altered(how)) = difference(bus, stream, &config).await {
            warn!(
                consumer = name,
                stream,
                "the durable consumer was changed at the broker ({how}) and is created anew: all facts of its stream are \
                 delivered again, and those that were processed are recognised"
            );
            bus.in_time(bus.jetstream.delete_consumer_from_stream(name, stream)).await?;
        }
        let created = bus.in_time(bus.jetstream.create_consumer_on_stream(config.clone(), stream)).await?;
        match compare(&created.cached_info().config, &config) {
            None => Ok(created),
            Some(_) => Err(format!("the broker keeps another configuration of consumer {name}").into()),
        }
    })
}

/// Compares the consumer at the broker with its declaration. `None` if it is as declared, or missing, or unknown: an
/// attempt to use it shows why.
pub(super) fn difference<'a>(
    bus: &'a NatsBus,
    stream: &'a str,
    declared: &'a pull::Config,
) -> BoxFuture<'a, Option<Difference>> {
    Box::pin(async move {
        let name = declared.durable_name.as_deref().unwrap_or_default();
        let found: Result<Consumer<consumer::Config>, BoxedError> =
            bus.in_time(bus.jetstream.get_consumer_from_stream(name, stream)).await;
        compare(&found.ok()?.cached_info().config, declared)
    })
}

/// Adds the record of the declared subjects.
pub(super) fn recorded(mut config: pull::Config) -> pull::Config {
    let declared = subjects(&config.filter_subject, &config.filter_subjects);
    config.metadata.insert(DECLARED.to_owned(), in_one_text(&declared));
    config
}

fn compare(found: &consumer::Config, declared: &pull::Config) -> Option<Difference> {
    if found.deliver_subject.is_some() {
        return Some(Difference::Altered("it pushes messages to a subject".to_owned()));
    }
    if found.ack_policy != AckPolicy::Explicit || found.deliver_policy != DeliverPolicy::All {
        let how = format!("ack policy {:?}, deliver policy {:?}", found.ack_policy, found.deliver_policy);
        return Some(Difference::Altered(how));
    }
    let wanted = subjects(&declared.filter_subject, &declared.filter_subjects);
    let filter = subjects(&found.filter_subject, &found.filter_subjects);
    let text = in_one_text(&filter);
    let is_recorded = filter == wanted || found.metadata.get(DECLARED) == Some(&text);
    // Without a filter it consumes all.
    let is_complete = filter.is_empty() || wanted.is_subset(&filter);
    match (is_complete, is_recorded) {
        // Another build may declare more.
        (true, true) => None,
        (true, false) | (false, true) => Some(Difference::Outdated),
        (false, false) => Some(Difference::Altered(format!("it consumes {text}"))),
    }
}

fn subjects<'a>(one: &'a str, several: &'a [String]) -> BTreeSet<&'a str> {
    several.iter().map(String::as_str).chain([one]).filter(|subject| !subject.is_empty()).collect()
}

fn in_one_text(subjects: &BTreeSet<&str>) -> String {
    subjects.iter().copied().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(subjects: &[&str]) -> pull::Config {
        let filter_subjects = subjects.iter().map(|subject| (*subject).to_owned()).collect();
        recorded(pull::Config { filter_subjects, ..pull::Config::default() })
    }

    /// Consumer at the broker with these subjects, and those that its build has recorded.
    fn found(subjects: &[&str], record: &[&str]) -> consumer::Config {
        consumer::Config {
            filter_subjects: subjects.iter().map(|subject| (*subject).to_owned()).collect(),
            metadata: declared(record).metadata,
            ..consumer::Config::default()
        }
    }

    #[test]
    fn only_a_consumer_that_was_changed_by_hand_starts_over() {
        let wanted = declared(&["a", "b"]);
        let altered = |config| matches!(compare(&config, &wanted), Some(Difference::Altered(_)));
        let outdated = |config| compare(&config, &wanted) == Some(Difference::Outdated);
        assert_eq!(compare(&found(&["b", "a"], &["a", "b"]), &wanted), None);
        assert_eq!(
            compare(&found(&["b", "a"], &["x"]), &wanted),
            None,
            "created before subjects were recorded"
        );
        assert_eq!(compare(&found(&["a", "b", "c"], &["a", "b", "c"]), &wanted), None, "of a newer build");
        assert!(outdated(found(&["a"], &["a"])), "of an older build");
        assert!(outdated(found(&[], &["a", "b"])), "nothing is skipped");
        for (subjects, record) in
            [(vec!["a"], vec!["a", "b"]), (vec!["x"], vec!["a", "b"]), (vec!["a"], vec![])]
        {
            assert!(altered(found(&subjects, &record)), "{subjects:?}");
        }
        let same = || found(&["a", "b"], &["a", "b"]);
        assert!(altered(consumer::Config { deliver_subject: Some("x".to_owned()), ..same() }));
        assert!(altered(consumer::Config { ack_policy: AckPolicy::None, ..same() }));
        assert!(altered(consumer::Config { deliver_policy: DeliverPolicy::New, ..same() }));
    }
}
