//! PostgreSQL: guarantees between replicas, as two stores with connections of their own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use saga_core::decision::{Loaded, Reads, Writes};
use saga_core::row::RowKind;
use saga_core::service::Service as _;
use saga_engine::store::postgres::PostgresStore;
use saga_engine::store::roles::{
    DueWork as _, History as _, Leases as _, Outbox as _, Queries as _, Replicas as _, Retention as _,
    Transactions as _, Verification as _,
};
use saga_engine::store::{Guard, OpenOptions, RELAY_LEASE, StoreFault, TrimCutoffs};

use crate::support::{
    Depot, PostgresServer, Shelf, at, commit, due_query, id, in_time, of_row, open_postgres,
    open_postgres_as, outbox_writes, put, recorded, retry, shelf, state, task, tasks, wait_until,
};

pub type Outcome = Result<(), StoreFault>;

pub async fn two_replicas() -> (PostgresServer, [Arc<PostgresStore>; 2]) {
    let server = PostgresServer::any();
    let url = server.database().await;
    let one = open_postgres(&url, Depot::rows()).await.expect("a new database");
    let other = open_postgres(&url, Depot::rows()).await.expect("the same");
    (server, [Arc::new(one), Arc::new(other)])
}

/// Batch that puts a piece on a shelf, whatever is on it.
fn put_one(label: &'static str) -> (Reads, Box<dyn FnMut(Loaded) -> Writes + Send>) {
    let decide = Box::new(move |loaded: Loaded| {
        let version = loaded.rows.get(&shelf(label)).map_or(0, |row| row.version);
        let before = vec![put(1); usize::try_from(version).expect("a short history")];
        recorded(label, &before, &[put(1)])
    });
    (of_row(label), decide)
}

/// Guarantee 5, with any number of replicas.
#[tokio::test(flavor = "multi_thread")]
async fn updates_of_one_row_by_two_replicas_are_all_kept() -> Outcome {
    let (_server, stores) = two_replicas().await;
    let changes = (0..40).map(|number| {
        let store = stores[number % 2].clone();
        tokio::spawn(async move {
            let (reads, decide) = put_one("tea");
            store.transact(reads, decide).await
        })
    });
    for change in join_all(changes).await {
        change.expect("no panic")?;
    }
    assert_eq!(state(stores[0].as_ref(), "tea").await?.expect("a shelf").pieces, 40);
    assert!(stores[1].verify().await?.differing.is_empty());
    Ok(())
}

/// Rows are locked in one order, whatever order the batches name them in.
#[tokio::test(flavor = "multi_thread")]
async fn updates_of_same_rows_by_two_replicas_do_not_deadlock() -> Outcome {
    let (_server, stores) = two_replicas().await;
    let labels = ["ale", "bun", "cup", "dip"];
    for label in labels {
        commit(stores[0].as_ref(), recorded(label, &[], &[put(1)])).await?;
    }
    let changes = (0..40).map(|number: usize| {
        let store = stores[number % 2].clone();
        tokio::spawn(async move {
            let decide = Box::new(move |loaded: Loaded| {
                let mut all = Writes { decided_at: at(0), ..Writes::default() };
                for turn in 0..labels.len() {
                    let label = labels[(number + turn) % labels.len()];
                    let version = loaded.rows[&shelf(label)].version;
                    let before = vec![put(1); usize::try_from(version).expect("a short history")];
                    let Writes { rows, events, .. } = recorded(label, &before, &[put(1)]);
                    all.rows.extend(rows);
                    all.events.extend(events);
                }
                all
            });
            let reads = Reads { rows: labels.map(shelf).into(), ..Reads::default() };
            store.transact(reads, decide).await
        })
    });
    for change in join_all(changes).await {
        change.expect("no panic")?;
    }
    for label in labels {
        assert_eq!(state(stores[0].as_ref(), label).await?.expect("a shelf").pieces, 41, "{label}");
    }
    Ok(())
}

/// A broker may deliver one message to two replicas.
#[tokio::test(flavor = "multi_thread")]
async fn message_delivered_to_two_replicas_is_processed_once() -> Outcome {
    let (_server, stores) = two_replicas().await;
    let given = (0..60_u128).map(|number| {
        let store = stores[usize::from(number % 2 == 1)].clone();
        tokio::spawn(async move {
            let place = ("filling", id(number / 2));
            let decide = Box::new(move |loaded: Loaded| {
                if loaded.inbox.contains_key(&place) {
                    return Writes::default();
                }
                Writes { inbox: vec![place], ..outbox_writes([number]) }
            });
            store.transact(Reads { inbox: [place].into(), ..Reads::default() }, decide).await
        })
    });
    for answer in join_all(given).await {
        answer.expect("no panic")?;
    }
    let entries = stores[0].pending_entries(99).await?;
    let handled: BTreeSet<u128> = entries.iter().map(|entry| entry.id.as_u128() / 2).collect();
    assert_eq!((entries.len(), handled.len()), (30, 30), "each once");
    Ok(())
}

/// A reader at a position misses nothing: later commits get later positions.
#[tokio::test(flavor = "multi_thread")]
async fn positions_follow_commit_order() -> Outcome {
    let (_server, stores) = two_replicas().await;
    let writing = (0..4_u128).map(|writer| {
        let store = stores[usize::from(writer % 2 == 1)].clone();
        tokio::spawn(async move {
            for number in 0..50 {
                commit(store.as_ref(), outbox_writes([writer * 100 + number, writer * 100 + number + 50]))
                    .await?;
            }
            Ok::<_, StoreFault>(())
        })
    });
    let writing = tokio::spawn(join_all(writing));
    let (mut last, mut seen) = (0, 0);
    while seen < 400 {
        let is_over = writing.is_finished();
        let entries = stores[0].pending_entries(1_000).await?;
        let new: Vec<i64> = entries.iter().map(|entry| entry.seq).filter(|seq| *seq > last).collect();
        let (first, count) = (last + 1, i64::try_from(new.len()).expect("few"));
        assert_eq!(new, (first..first + count).collect::<Vec<_>>(), "none between, and none missing");
        (last, seen) = (last + count, seen + count);
        assert!(!is_over || count > 0 || seen == 400, "{seen} entries of 400");
    }
    for written in writing.await.expect("no panic") {
        written.expect("no panic")?;
    }
    assert_eq!(stores[1].sequence_end().await?, Some(400));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn due_tasks_are_claimed_once_among_replicas() -> Outcome {
    let (_server, stores) = two_replicas().await;
    let mut writes = tasks((1..=100).map(|number| task(number, at(0))), "", at(0));
    writes.release_claims();
    commit(stores[0].as_ref(), writes).await?;
    let looks = (0..20).map(|look: usize| {
        let store = stores[look % 2].clone();
        tokio::spawn(async move {
            let owner = format!("depot-{}", look % 2);
            Ok::<_, StoreFault>(store.claim_due(due_query(at(1), 10, &owner, at(60))).await?.tasks)
        })
    });
    let mut claimed = vec![];
    for tasks in join_all(looks).await {
        claimed.extend(tasks.expect("no panic")?.into_iter().map(|task| task.id));
    }
    // A look passes over what another one has in its hands just then.
    while let tasks = stores[0].claim_due(due_query(at(1), 10, "depot-0", at(60))).await?.tasks
        && !tasks.is_empty()
    {
        claimed.extend(tasks.into_iter().map(|task| task.id));
    }
    let distinct: BTreeSet<_> = claimed.iter().collect();
    assert_eq!((claimed.len(), distinct.len()), (100, 100));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn due_retry_goes_to_second_replica_only_if_first_does_nothing() -> Outcome {
    let (_server, [one, other]) = two_replicas().await;
    let retries = (1..=4).map(|number| retry("filling", number, at(1))).collect();
    commit(one.as_ref(), Writes { retries, decided_at: at(0), ..Writes::default() }).await?;
    let due = async |store: &Arc<PostgresStore>, owner: &str, second: i64, limit: usize| {
        let due = store.claim_due(due_query(at(second), limit, owner, at(60))).await?;
        let ids: Vec<u128> = due.retries.iter().map(|retry| retry.message_id.as_u128()).collect();
        Ok::<_, StoreFault>((ids, due.next))
    };
    assert_eq!(due(&one, "depot-1", 2, 3).await?.0, [1, 2, 3]);
    let (rest, next) = due(&other, "depot-2", 3, 9).await?;
    assert_eq!((rest, next), (vec![4], Some(at(12))), "and looks again when the others may be free");
    assert_eq!(due(&one, "depot-1", 4, 9).await?.0, [1, 2, 3], "its own, again");
    commit(one.as_ref(), Writes { retries: vec![retry("filling", 1, at(5))], ..Writes::default() }).await?;
    assert_eq!(due(&other, "depot-2", 6, 9).await?.0, [4, 1], "a new try is anybody's");
    assert_eq!(due(&other, "depot-2", 14, 9).await?.0, [2, 3, 4, 1], "one that has ended");
    Ok(())
}

/// A killed process has lost its connections, and with them its name.
#[tokio::test(flavor = "multi_thread")]
async fn lease_of_dead_replica_is_free_early() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let named = |instance| OpenOptions { instance, ..OpenOptions::default() };
    let one = open_postgres_as(&url, Depot::rows(), &named("depot-1")).await?;
    let other = open_postgres_as(&url, Depot::rows(), &named("depot-2")).await?;
    let held = one.acquire_lease(RELAY_LEASE, None, "depot-1", at(0), at(60)).await?.expect("nobody has it");
    let taken = async || other.acquire_lease(RELAY_LEASE, None, "depot-2", at(1), at(61)).await;
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(taken().await?, None, "it is there");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(one);
    let gone = tokio::time::Instant::now();
    wait_until("its lease is free", async || matches!(taken().await, Ok(Some(_)))).await;
    assert!(gone.elapsed() >= Duration::from_secs(2), "it might only have lost a connection");
    let again = open_postgres_as(&url, Depot::rows(), &named("depot-1")).await?;
    assert_eq!(
        again.acquire_lease(RELAY_LEASE, Some(&held), "depot-1", at(2), at(62)).await?,
        None,
        "it is fenced off"
    );
    Ok(())
}

/// A leader that cannot reach the database stops leading.
#[tokio::test(flavor = "multi_thread")]
async fn leadership_ends_with_unrenewed_lease() -> Outcome {
    let (_server, [one, _other]) = two_replicas().await;
    let began = tokio::time::Instant::now();
    one.acquire_lease(RELAY_LEASE, None, "depot-1", at(0), at(1)).await?.expect("nobody has it");
    let mut leads = one.leadership().expect("they may share it");
    assert!(*leads.borrow_and_update());
    in_time("it ends", leads.changed()).await.expect("it is told");
    assert!(!*leads.borrow() && began.elapsed() >= Duration::from_secs(1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_name_is_exclusive_until_its_process_ends() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let named = |instance| OpenOptions { instance, ..OpenOptions::default() };
    let one = open_postgres_as(&url, Depot::rows(), &named("depot-1")).await?;
    let _other = open_postgres_as(&url, Depot::rows(), &named("depot-2")).await?;
    let fault = open_postgres_as(&url, Depot::rows(), &named("depot-1")).await.err().expect("refused");
    let message = fault.to_string();
    assert!(message.contains("another process runs as instance depot-1"), "{message}");
    drop(one);
    let again = open_postgres_as(&url, Depot::rows(), &named("depot-1")).await?;
    commit(&again, outbox_writes([1])).await?;
    Ok(())
}

/// Commands for a stopped service are rejected while a replica of it runs.
#[tokio::test(flavor = "multi_thread")]
async fn exclusive_open_is_rejected_beside_running_replica() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let alone = OpenOptions { alone: true, ..OpenOptions::default() };
    let other = open_postgres(&url, Depot::rows()).await?;
    let fault = open_postgres_as(&url, Depot::rows(), &alone).await.err().expect("refused");
    assert!(fault.to_string().contains("another process uses it: stop the service first"), "{fault}");
    drop(other);
    wait_until("it is alone", async || open_postgres_as(&url, Depot::rows(), &alone).await.is_ok()).await;
    Ok(())
}

/// A replica that stops releases the relay to the others at once.
#[tokio::test(flavor = "multi_thread")]
async fn released_lease_is_acquired_at_once() -> Outcome {
    let (_server, [one, other]) = two_replicas().await;
    let held = one.acquire_lease(RELAY_LEASE, None, "depot-1", at(0), at(10)).await?.expect("nobody has it");
    assert_eq!(other.acquire_lease(RELAY_LEASE, None, "depot-2", at(1), at(11)).await?, None);
    other.release_lease(RELAY_LEASE, "depot-2").await?;
    assert_eq!(
        other.acquire_lease(RELAY_LEASE, None, "depot-2", at(1), at(11)).await?,
        None,
        "it was not its own"
    );
    one.release_lease(RELAY_LEASE, "depot-1").await?;
    let next = other.acquire_lease(RELAY_LEASE, None, "depot-2", at(1), at(11)).await?.expect("given back");
    assert!(next.fence > held.fence);
    Ok(())
}

/// Each process creates the missing tables, and none hinders the others.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_starts_create_one_database() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let opened = (0..6).map(|_| open_postgres(&url, Depot::rows()));
    let opened: Vec<PostgresStore> = join_all(opened).await.into_iter().collect::<Result<_, _>>()?;
    let mut ids = BTreeSet::new();
    for store in &opened {
        ids.insert(store.position().await?.id);
    }
    assert_eq!(ids.len(), 1);
    Ok(())
}

/// Short reads succeed beside a long one, and a dropped read ends on the server.
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_statement_is_cancelled_on_server() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let store = open_postgres(&url, Depot::rows()).await?;
    commit(&store, recorded("tea", &[], &[put(1)])).await?;
    // Every look at the shelves takes longer than any test.
    let slow = "ALTER TABLE row_shelf RENAME TO kept; CREATE VIEW row_shelf AS SELECT kept.* FROM kept, pg_sleep(3600)";
    crate::support::execute(&url, slow).await;
    let query = saga_core::query::Query { limit: 9, ..saga_core::query::Query::default() };
    let abandoned = tokio::time::timeout(Duration::from_millis(200), store.find("shelf", query)).await;
    assert!(abandoned.is_err(), "it takes long");
    wait_until("the server has stopped", async || sleeping(&url).await == 0).await;
    Ok(())
}

/// Number of statements that sleep in this database.
async fn sleeping(url: &str) -> i64 {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    client.query_one(sql, &[]).await.expect("an answer").get(0)
}

/// Rolling upgrade: a newer build adds tables. Older builds continue, and can be started again.
#[tokio::test(flavor = "multi_thread")]
async fn older_build_continues_beside_newer_build_with_additive_migration() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let named = |instance| OpenOptions { instance, ..OpenOptions::default() };
    let older = open_postgres_as(&url, Depot::rows(), &named("older")).await?;
    commit(&older, recorded("tea", &[], &[put(1)])).await?;
    // What a newer build does at its start: a table of the machinery, and a kind of rows that the older one does not know.
    let (pg, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    pg.batch_execute(
        "CREATE TABLE of_the_future (id bigint);
         INSERT INTO migration (number, checksum, applied_at, additive)
             SELECT max(number) + 1, 'of the future', 0, true FROM migration",
    )
    .await
    .expect("made");
    let more = [Depot::rows(), vec![RowKind { name: "crate", ..RowKind::of::<Shelf>() }]].concat();
    let newer = open_postgres_as(&url, more, &named("newer")).await?;
    commit(&newer, recorded("tea", &[put(1)], &[put(2)])).await?;
    commit(&older, recorded("tea", &[put(1), put(2)], &[put(3)])).await?;
    drop(older);
    let older = open_postgres_as(&url, Depot::rows(), &named("older")).await?;
    commit(&older, recorded("ale", &[], &[put(1)])).await?;
    assert_eq!(state(&newer, "tea").await?.expect("a shelf").pieces, 6);
    assert!(older.verify().await?.differing.is_empty() && newer.verify().await?.differing.is_empty());

    // Other fields of a kind are no addition: its table is made anew, under whoever writes to it.
    let other = || vec![RowKind { fields: &[], ..RowKind::of::<Shelf>() }];
    let fault = open_postgres_as(&url, other(), &named("other")).await.err().expect("refused");
    let message = fault.to_string();
    assert!(message.contains("has other fields of shelf than the processes that use it"), "{message}");
    commit(&older, recorded("bun", &[], &[put(1)])).await?;
    drop((older, newer));
    let opened = async || open_postgres_as(&url, other(), &named("other")).await.is_ok();
    wait_until("the others are gone, and it is made anew", opened).await;
    Ok(())
}

/// Another replica may look its token up, whatever the clock of this machine says.
#[tokio::test(flavor = "multi_thread")]
async fn commit_tokens_are_dated_and_trimmed_by_the_servers_clock() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let (pg, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    // A server whose clock is a day behind this machine.
    pg.batch_execute(
        "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql
             AS $$ SELECT pg_catalog.clock_timestamp() - interval '1 day' $$;
         DO $$ BEGIN
             EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database());
         END $$",
    )
    .await
    .expect("made");
    let store = open_postgres(&url, Depot::rows()).await?;
    commit(&store, recorded("tea", &[], &[put(1)])).await?;
    let age = "SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) - committed_at / 1000000)::bigint FROM batch";
    let age: i64 = pg.query_one(age, &[]).await.expect("a token").get(0);
    assert!((86_400..90_000).contains(&age), "{age} s old by the clock of this machine");
    let cutoffs = TrimCutoffs { inbox: at(0), keys: at(0), published: at(0) };
    store.trim(cutoffs, 10).await?;
    let tokens = async || pg.query("SELECT token FROM batch", &[]).await.expect("tokens").len();
    assert_eq!(tokens().await, 1, "it is new by the clock of the server");
    pg.batch_execute("UPDATE batch SET committed_at = committed_at - 3700000000").await.expect("an hour ago");
    store.trim(cutoffs, 10).await?;
    assert_eq!(tokens().await, 0);
    Ok(())
}

/// A replica that hangs in its turn delays the others for a limited time.
#[tokio::test(flavor = "multi_thread")]
async fn turn_is_exclusive_and_waiting_for_it_is_bounded() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let one = Arc::new(open_postgres(&url, Depot::rows()).await?);
    let other = Arc::new(open_postgres(&url, Depot::rows()).await?);
    // Somebody who has it and hangs: the other one waits in the line, and then goes on without.
    let waits_in_vain = async || {
        let held = turn_of(&one, &other).await;
        write(&one).await;
        write(&other).await;
        let asking = other.clone();
        let waiting = tokio::spawn(async move { asking.wait_for_turn().await.is_some() });
        let mut has_waited = false;
        while !waiting.is_finished() {
            has_waited |= waiting_for_locks(&url).await > 0;
        }
        drop(held);
        // The server takes the turn away from who hangs for seconds. Then it is tried again.
        !waiting.await.expect("no panic") && has_waited
    };
    wait_until("it waits, and not for ever", waits_in_vain).await;
    let held = turn_of(&other, &one).await;
    in_time("it is written without a turn", commit(one.as_ref(), recorded("bun", &[], &[put(1)]))).await?;
    drop(held);
    turn_of(&one, &other).await;
    Ok(())
}

/// Turn of a replica. Turns are taken only shortly after batches of others, so that both write before each try.
async fn turn_of(store: &Arc<PostgresStore>, other: &Arc<PostgresStore>) -> Guard {
    let mut turn = None;
    let is_taken = async || {
        write(other).await;
        write(store).await;
        turn = store.wait_for_turn().await;
        turn.is_some()
    };
    wait_until("it gets its turn", is_taken).await;
    turn.expect("it was taken")
}

async fn write(store: &Arc<PostgresStore>) {
    let (reads, decide) = put_one("tea");
    store.transact(reads, decide).await.expect("it is written");
}

/// Number of connections to this database that wait for an advisory lock.
async fn waiting_for_locks(url: &str) -> i64 {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let sql = "SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database
         WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted";
    client.query_one(sql, &[]).await.expect("an answer").get(0)
}
