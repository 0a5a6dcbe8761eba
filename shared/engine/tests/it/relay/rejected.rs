//! Entries that the broker does not accept although it accepts others.

use saga_engine::runtime::relay::Round;

use super::broker::{Outcome, of_subjects, round, with_outbox};
use crate::support::{commit, outbox_writes};

/// A publish without permission is never acknowledged.
#[tokio::test]
async fn unacknowledged_subject_fails_after_its_time_and_others_continue() -> Outcome {
    let (store, broker, mut relay) =
        with_outbox(of_subjects(&[(1, 1, "lost"), (2, 2, "lost"), (3, 1, "stored"), (4, 4, "stored")]))
            .await?;
    broker.never_takes("depot.lost");
    let delayed = || Round::Delayed("no answer".to_owned());
    for second in [0, 30, 59] {
        assert_eq!(round(&mut relay, &broker, second).await?, delayed());
        assert_eq!(broker.arrived(), [], "it is waited for a while");
    }
    assert_eq!(round(&mut relay, &broker, 60).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [4], "what follows in the saga of a refused one waits");
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed), (0, 3));

    // The next of that subject need not wait as long, and holds nobody up.
    commit(store.as_ref(), of_subjects(&[(5, 5, "lost"), (6, 6, "stored")])).await?;
    assert_eq!(round(&mut relay, &broker, 61).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [4, 6]);

    broker.takes_all_again();
    assert_eq!(store.retry_failed_entries(None).await?, 3);
    assert_eq!(round(&mut relay, &broker, 62).await?, Round::Published(4));
    assert_eq!(broker.arrived(), [4, 6, 1, 2, 3, 5]);
    Ok(())
}

#[tokio::test]
async fn failed_entry_is_no_publish_stall() -> Outcome {
    let (_, broker, mut relay) = with_outbox(outbox_writes([1, 2])).await?;
    broker.never_takes("payload 1");
    for (second, judged) in [(0, vec![false]), (60, vec![false, true])] {
        round(&mut relay, &broker, second).await?;
        assert_eq!(*broker.judged.lock(), judged, "whether the way is free, after {second} s");
    }
    Ok(())
}

#[tokio::test]
async fn unacknowledged_message_fails_without_others_of_its_subject() -> Outcome {
    let (store, broker, mut relay) = with_outbox(outbox_writes([1, 2, 3])).await?;
    broker.never_takes("payload 1");
    assert_eq!(round(&mut relay, &broker, 0).await?, Round::Delayed("no answer".to_owned()));
    assert_eq!(round(&mut relay, &broker, 60).await?, Round::Published(2));
    assert_eq!(broker.arrived(), [2, 3]);
    assert_eq!(store.stats().await?.outbox_failed, 1);
    Ok(())
}

#[tokio::test]
async fn two_unacknowledged_subjects_block_no_third() -> Outcome {
    let entries = [(1, 1, "lost"), (2, 2, "gone"), (3, 3, "stored"), (4, 2, "stored")];
    let (store, broker, mut relay) = with_outbox(of_subjects(&entries)).await?;
    broker.never_takes("depot.lost");
    broker.never_takes("depot.gone");
    for second in [0, 60] {
        round(&mut relay, &broker, second).await?;
    }
    assert_eq!(broker.arrived(), [3]);
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed), (3, 1), "the second is waited for a while too");
    assert_eq!(round(&mut relay, &broker, 120).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [3, 3]);

    // The next of these subjects hold nobody up.
    commit(store.as_ref(), of_subjects(&[(5, 5, "lost"), (6, 6, "gone"), (7, 7, "stored")])).await?;
    round(&mut relay, &broker, 121).await?;
    assert_eq!(broker.arrived(), [3, 3, 7]);
    assert_eq!(store.stats().await?.outbox_failed, 5);
    Ok(())
}

#[tokio::test]
async fn isolated_entry_waits_for_earlier_entries_of_its_saga() -> Outcome {
    let entries = [(1, 1, "lost"), (2, 2, "stored"), (3, 2, "lost"), (4, 4, "stored")];
    let (store, broker, mut relay) = with_outbox(of_subjects(&entries)).await?;
    broker.never_takes("payload 1");
    assert_eq!(round(&mut relay, &broker, 0).await?, Round::Delayed("no answer".to_owned()));
    broker.always_rejects(2);
    round(&mut relay, &broker, 60).await?;
    assert_eq!(broker.arrived(), [4], "the third waits for the second of its saga");
    assert_eq!(store.stats().await?.outbox_failed, 3);
    Ok(())
}

#[tokio::test]
async fn oversized_message_does_not_fail_others_during_an_outage() -> Outcome {
    let (store, broker, mut relay) = with_outbox(outbox_writes([1, 2])).await?;
    broker.takes_nothing();
    broker.always_rejects(2);
    for second in [0, 60] {
        assert_eq!(round(&mut relay, &broker, second).await?, Round::Delayed("no answer".to_owned()));
    }
    assert_eq!(store.stats().await?.outbox_failed, 1, "the one that is too large");
    broker.takes_all_again();
    assert_eq!(round(&mut relay, &broker, 61).await?, Round::Published(1));
    Ok(())
}

#[tokio::test]
async fn unacknowledged_entry_fails_in_time_although_the_clock_was_set_back() -> Outcome {
    let (_, broker, mut relay) = with_outbox(of_subjects(&[(1, 1, "lost"), (2, 2, "stored")])).await?;
    broker.never_takes("depot.lost");
    for second in [36_000, 0, 60] {
        round(&mut relay, &broker, second).await?;
    }
    assert_eq!(broker.arrived(), [2]);
    Ok(())
}

/// Guarantee 7.
#[tokio::test]
async fn broker_that_recovers_during_isolation_fails_no_entry() -> Outcome {
    for publishes_lost in 1..=3 {
        let (store, broker, mut relay) =
            with_outbox(of_subjects(&[(1, 1, "lost"), (2, 2, "stored")])).await?;
        broker.takes_nothing();
        assert_eq!(round(&mut relay, &broker, 0).await?, Round::Delayed("no answer".to_owned()));
        broker.recovers_after(publishes_lost);
        round(&mut relay, &broker, 3600).await?;
        assert_eq!(store.stats().await?.outbox_failed, 0, "back after {publishes_lost}");
    }
    Ok(())
}

#[tokio::test]
async fn message_whose_acknowledgements_get_lost_does_not_fail() -> Outcome {
    for (answers_lost, failed) in [(1, 0), (4, 0), (5, 1)] {
        let (store, broker, mut relay) = with_outbox(outbox_writes([1, 2])).await?;
        broker.takes_nothing();
        round(&mut relay, &broker, 0).await?;
        broker.takes_all_again();
        broker.loses("payload 1", answers_lost);
        round(&mut relay, &broker, 60).await?;
        assert_eq!(store.stats().await?.outbox_failed, failed, "{answers_lost} lost");
    }
    Ok(())
}

#[tokio::test]
async fn rejected_entry_waits_for_a_retry_by_an_operator() -> Outcome {
    let (store, broker, mut relay) = with_outbox(outbox_writes([1, 2, 3])).await?;
    broker.always_rejects(2);
    assert_eq!(round(&mut relay, &broker, 0).await?, Round::Published(2));
    assert_eq!(broker.arrived(), [1, 3]);
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed), (0, 1));
    assert_eq!(round(&mut relay, &broker, 9).await?, Round::Idle);

    broker.takes_all_again();
    assert_eq!(store.retry_failed_entries(None).await?, 1);
    assert_eq!(round(&mut relay, &broker, 10).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [1, 3, 2]);
    Ok(())
}
