//! What holds where several processes share one database: two stores, each with its own connections.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use saga_core::decision::{Loaded, Reads, Writes};
use saga_core::row::RowKind;
use saga_core::service::Service as _;
use saga_engine::store::postgres::PostgresStore;
use saga_engine::store::{Heard, Opening, Overridden, RELAY, Store, StoreFault};
use tokio::sync::mpsc::Receiver;

use crate::support::{
    Depot, PostgresServer, Shelf, at, commit, due_query, id, in_time, of_row, open_postgres,
    open_postgres_as, promises, put, recorded, retry, shelf, state, task, tasks, wait_until,
};

type Outcome = Result<(), StoreFault>;

/// Two stores over one database.
async fn two() -> (PostgresServer, [Arc<PostgresStore>; 2]) {
    let server = PostgresServer::any();
    let url = server.database().await;
    let one = open_postgres(&url, Depot::rows()).await.expect("a new database");
    let other = open_postgres(&url, Depot::rows()).await.expect("the same");
    (server, [Arc::new(one), Arc::new(other)])
}

/// The batch of one who puts a piece on a shelf, whatever is on it.
fn put_one(label: &'static str) -> (Reads, Box<dyn FnMut(Loaded) -> Writes + Send>) {
    let decide = Box::new(move |loaded: Loaded| {
        let version = loaded.rows.get(&shelf(label)).map_or(0, |row| row.version);
        let before = vec![put(1); usize::try_from(version).expect("a short history")];
        recorded(label, &before, &[put(1)])
    });
    (of_row(label), decide)
}

/// Law 5, with any number of replicas.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_that_change_one_row_lose_no_change() -> Outcome {
    let (_server, stores) = two().await;
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

/// Rows are locked in one order, whatever order they are named in: nobody waits for who waits for him.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_that_change_the_same_rows_wait_for_each_other_in_one_direction() -> Outcome {
    let (_server, stores) = two().await;
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

/// One message, given to two at once by a broker that is unsure, takes effect once.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_two_processes_are_given_is_handled_by_one() -> Outcome {
    let (_server, stores) = two().await;
    let given = (0..60_u128).map(|number| {
        let store = stores[usize::from(number % 2 == 1)].clone();
        tokio::spawn(async move {
            let place = ("filling", id(number / 2));
            let decide = Box::new(move |loaded: Loaded| {
                if loaded.inbox.contains_key(&place) {
                    return Writes::default();
                }
                Writes { inbox: vec![place], ..promises([number]) }
            });
            store.transact(Reads { inbox: [place].into(), ..Reads::default() }, decide).await
        })
    });
    for answer in join_all(given).await {
        answer.expect("no panic")?;
    }
    let entries = stores[0].pending(99).await?;
    let handled: BTreeSet<u128> = entries.iter().map(|entry| entry.id.as_u128() / 2).collect();
    assert_eq!((entries.len(), handled.len()), (30, 30), "each once");
    Ok(())
}

/// Whoever has read up to a position misses nothing: what is committed later stands behind it.
#[tokio::test(flavor = "multi_thread")]
async fn positions_are_given_in_the_order_of_the_commits() -> Outcome {
    let (_server, stores) = two().await;
    let writing = (0..4_u128).map(|writer| {
        let store = stores[usize::from(writer % 2 == 1)].clone();
        tokio::spawn(async move {
            for number in 0..50 {
                commit(store.as_ref(), promises([writer * 100 + number, writer * 100 + number + 50])).await?;
            }
            Ok::<_, StoreFault>(())
        })
    });
    let writing = tokio::spawn(join_all(writing));
    let (mut last, mut seen) = (0, 0);
    while seen < 400 {
        let is_over = writing.is_finished();
        let entries = stores[0].pending(1_000).await?;
        let new: Vec<i64> = entries.iter().map(|entry| entry.seq).filter(|seq| *seq > last).collect();
        let (first, count) = (last + 1, i64::try_from(new.len()).expect("few"));
        assert_eq!(new, (first..first + count).collect::<Vec<_>>(), "none between, and none missing");
        (last, seen) = (last + count, seen + count);
        assert!(!is_over || count > 0 || seen == 400, "{seen} entries of 400");
    }
    for written in writing.await.expect("no panic") {
        written.expect("no panic")?;
    }
    assert_eq!(stores[1].line_end().await?, Some(400));
    Ok(())
}

/// Each task goes to one of those who look.
#[tokio::test(flavor = "multi_thread")]
async fn due_tasks_are_shared_and_none_is_claimed_twice() -> Outcome {
    let (_server, stores) = two().await;
    let mut writes = tasks((1..=100).map(|number| task(number, at(0))), "", at(0));
    writes.leave_tasks();
    commit(stores[0].as_ref(), writes).await?;
    let looks = (0..20).map(|look: usize| {
        let store = stores[look % 2].clone();
        tokio::spawn(async move {
            let owner = format!("depot-{}", look % 2);
            Ok::<_, StoreFault>(store.due(due_query(at(1), 10, &owner, at(60))).await?.tasks)
        })
    });
    let mut claimed = vec![];
    for tasks in join_all(looks).await {
        claimed.extend(tasks.expect("no panic")?.into_iter().map(|task| task.id));
    }
    // A look passes over what another one has in its hands just then.
    while let tasks = stores[0].due(due_query(at(1), 10, "depot-0", at(60))).await?.tasks
        && !tasks.is_empty()
    {
        claimed.extend(tasks.into_iter().map(|task| task.id));
    }
    let distinct: BTreeSet<_> = claimed.iter().collect();
    assert_eq!((claimed.len(), distinct.len()), (100, 100));
    Ok(())
}

/// They have met once something has been heard: who believes to be alone says nothing.
async fn met(one: &PostgresStore, heard: &mut Receiver<Heard>) -> Outcome {
    for number in 1_000.. {
        commit(one, promises([number])).await?;
        if tokio::time::timeout(Duration::from_millis(50), heard.recv()).await.is_ok() {
            break;
        }
    }
    Ok(())
}

/// A try is one process's; of one that has ended meanwhile another takes over.
#[tokio::test(flavor = "multi_thread")]
async fn a_due_retry_is_told_to_one_and_to_another_when_that_has_not_tried() -> Outcome {
    let (_server, [one, other]) = two().await;
    let retries = (1..=4).map(|number| retry("filling", number, at(1))).collect();
    commit(one.as_ref(), Writes { retries, decided_at: at(0), ..Writes::default() }).await?;
    let due = async |store: &Arc<PostgresStore>, owner: &str, second: i64, limit: usize| {
        let due = store.due(due_query(at(second), limit, owner, at(60))).await?;
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

/// A commit of one wakes the other: its relay, its timers, and who waits for a row.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_commits_the_other_hears() -> Outcome {
    let (_server, [one, other]) = two().await;
    let mut heard = other.heard().expect("they may share it");
    assert!(other.heard().is_none(), "to one who listens");
    let mut own = one.heard().expect("they may share it");
    met(&one, &mut heard).await?;
    let writes = Writes {
        retries: vec![retry("filling", 8, at(30)), retry("filling", 9, at(32))],
        outbox: promises([1]).outbox,
        decided_at: at(29),
        ..recorded("tea", &[], &[put(1)])
    };
    commit(one.as_ref(), writes).await?;
    let wanted = [Heard::Promised, Heard::Due(at(30)), Heard::Changed(vec![shelf("tea")])];
    let mut all = vec![];
    while all.last() != Some(&wanted[2]) {
        all.push(next(&mut heard).await);
    }
    assert!(all.ends_with(&wanted), "{all:?}");
    commit(other.as_ref(), promises([2])).await?;
    assert_eq!(next(&mut own).await, Heard::Promised, "and nothing of its own before");
    Ok(())
}

/// Everybody looks now and then for what is due: only of what is due sooner it need be told.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_later_than_the_next_look_is_not_told() -> Outcome {
    let (_server, [one, other]) = two().await;
    let mut heard = other.heard().expect("they may share it");
    met(&one, &mut heard).await?;
    let later =
        Writes { retries: vec![retry("filling", 9, at(31))], decided_at: at(29), ..Writes::default() };
    commit(one.as_ref(), later).await?;
    commit(one.as_ref(), recorded("tea", &[], &[put(1)])).await?;
    let mut all = vec![];
    while all.last() != Some(&Heard::Changed(vec![shelf("tea")])) {
        all.push(next(&mut heard).await);
    }
    assert!(!all.contains(&Heard::Due(at(31))), "{all:?}");
    Ok(())
}

/// Who has the lease of the relay leads, and publishes what it promises itself: no other relay need be woken for that.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_the_lease_of_the_relay_leads_and_keeps_its_promises_to_itself() -> Outcome {
    let (_server, [one, other]) = two().await;
    let leads = |store: &PostgresStore| *store.leads().expect("they may share it").borrow();
    assert!(!leads(&one) && !leads(&other), "nobody yet");
    let held = one.take_lease(RELAY, None, "depot-1", at(0), at(10)).await?.expect("nobody has it");
    assert_eq!(other.take_lease(RELAY, None, "depot-2", at(1), at(11)).await?, None);
    one.take_lease("audit", None, "depot-1", at(0), at(10)).await?;
    assert!(leads(&one) && !leads(&other));

    let mut heard = other.heard().expect("they may share it");
    commit(one.as_ref(), promises([1])).await?;
    commit(one.as_ref(), recorded("tea", &[], &[put(1)])).await?;
    let mut all = vec![];
    while all.last() != Some(&Heard::Changed(vec![shelf("tea")])) {
        all.push(next(&mut heard).await);
    }
    assert!(!all.contains(&Heard::Promised), "{all:?}");

    other.take_lease(RELAY, None, "depot-2", at(11), at(21)).await?.expect("it has lapsed");
    assert!(leads(&one) && leads(&other), "one has not looked yet");
    assert_eq!(one.take_lease(RELAY, Some(&held), "depot-1", at(12), at(22)).await?, None);
    assert!(!leads(&one) && leads(&other));
    other.give_back_lease(RELAY, "depot-2").await?;
    assert!(!leads(&other));
    Ok(())
}

/// A process that is killed has lost its connections, and with them its name: nobody waits until its lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_one_who_is_gone_is_free_soon_and_of_one_who_is_there_when_it_is_over() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let named = |instance| Opening { instance, ..Opening::default() };
    let one = open_postgres_as(&url, Depot::rows(), &named("depot-1")).await?;
    let other = open_postgres_as(&url, Depot::rows(), &named("depot-2")).await?;
    let held = one.take_lease(RELAY, None, "depot-1", at(0), at(60)).await?.expect("nobody has it");
    let taken = async || other.take_lease(RELAY, None, "depot-2", at(1), at(61)).await;
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
        again.take_lease(RELAY, Some(&held), "depot-1", at(2), at(62)).await?,
        None,
        "it is fenced off"
    );
    Ok(())
}

/// Whoever cannot ask any more does not go on leading for that.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_renew_the_lease_leads_no_longer_than_it() -> Outcome {
    let (_server, [one, _other]) = two().await;
    let began = tokio::time::Instant::now();
    one.take_lease(RELAY, None, "depot-1", at(0), at(1)).await?.expect("nobody has it");
    let mut leads = one.leads().expect("they may share it");
    assert!(*leads.borrow_and_update());
    in_time("it ends", leads.changed()).await.expect("it is told");
    assert!(!*leads.borrow() && began.elapsed() >= Duration::from_secs(1));
    Ok(())
}

/// Rows are many, and mostly nobody waits for any: then the others are not told which have changed.
#[tokio::test(flavor = "multi_thread")]
async fn of_changed_rows_is_told_only_while_somebody_waits_for_their_kind() -> Outcome {
    let (_server, [one, other]) = two().await;
    let mut heard = other.heard().expect("they may share it");
    let mut count = 0;
    // Which of what is heard between two promises is the change of a shelf.
    let mut is_told = async || {
        let before = vec![put(1); count];
        count += 1;
        let writes = Writes {
            outbox: promises([5_000 + count as u128]).outbox,
            ..recorded("tea", &before, &[put(1)])
        };
        commit(one.as_ref(), writes).await.expect("a batch");
        while next(&mut heard).await != Heard::Promised {}
        let changed = tokio::time::timeout(Duration::from_millis(50), heard.recv()).await;
        matches!(changed, Ok(Some(Heard::Changed(_))))
    };
    // Right after a start it is not known who waits for what.
    assert!(is_told().await);
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while is_told().await {
        assert!(tokio::time::Instant::now() < until, "it is told although nobody waits");
    }
    let waits = other.wait_for("shelf");
    while !is_told().await {
        assert!(tokio::time::Instant::now() < until, "it is not told although somebody waits");
    }
    drop(waits);
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while is_told().await {
        assert!(tokio::time::Instant::now() < until, "it is told although nobody waits any more");
    }
    Ok(())
}

/// What operators override at one the other hears of, once it is changed.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_overridden_at_one_the_other_hears() -> Outcome {
    let (_server, [one, other]) = two().await;
    let mut heard = other.heard().expect("they may share it");
    met(&one, &mut heard).await?;
    assert!(one.override_with(0, "one".to_owned()).await?);
    while next(&mut heard).await != Heard::Overridden {}
    assert_eq!(other.overrides().await?, Overridden { revision: 1, text: "one".to_owned() });
    Ok(())
}

async fn next(heard: &mut Receiver<Heard>) -> Heard {
    in_time("something is heard", heard.recv()).await.expect("it goes on")
}

/// More than one saying holds: each row is told.
#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_a_large_batch_is_heard_of() -> Outcome {
    let (_server, [one, other]) = two().await;
    let mut heard = other.heard().expect("they may share it");
    met(&one, &mut heard).await?;
    let labels: Vec<String> =
        (0..256).map(|number| format!("a label of some length, as ids are, {number:03}")).collect();
    let mut all = Writes { decided_at: at(0), ..Writes::default() };
    for label in &labels {
        let Writes { rows, events, .. } = recorded(label, &[], &[put(1)]);
        all.rows.extend(rows);
        all.events.extend(events);
    }
    commit(one.as_ref(), all).await?;
    let mut changed = BTreeSet::new();
    while changed.len() < labels.len() {
        if let Heard::Changed(rows) = next(&mut heard).await {
            changed.extend(rows.into_iter().map(|key| key.id));
        }
    }
    assert_eq!(changed, labels.into_iter().collect());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_one_process_s_and_free_when_that_is_gone() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let named = |instance| Opening { instance, ..Opening::default() };
    let one = open_postgres_as(&url, Depot::rows(), &named("depot-1")).await?;
    let _other = open_postgres_as(&url, Depot::rows(), &named("depot-2")).await?;
    let fault = open_postgres_as(&url, Depot::rows(), &named("depot-1")).await.err().expect("refused");
    let said = fault.to_string();
    assert!(said.contains("another process runs as instance depot-1"), "{said}");
    drop(one);
    let again = open_postgres_as(&url, Depot::rows(), &named("depot-1")).await?;
    commit(&again, promises([1])).await?;
    Ok(())
}

/// What is done with the database of a stopped service is refused while a replica of it runs.
#[tokio::test(flavor = "multi_thread")]
async fn who_must_be_alone_is_refused_while_another_is_there() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let alone = Opening { alone: true, ..Opening::default() };
    let other = open_postgres(&url, Depot::rows()).await?;
    let fault = open_postgres_as(&url, Depot::rows(), &alone).await.err().expect("refused");
    assert!(fault.to_string().contains("another process uses it: stop the service first"), "{fault}");
    drop(other);
    wait_until("it is alone", async || open_postgres_as(&url, Depot::rows(), &alone).await.is_ok()).await;
    Ok(())
}

/// Who stops leaves the relay to the others at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_given_back_is_the_next_one_s_at_once() -> Outcome {
    let (_server, [one, other]) = two().await;
    let held = one.take_lease(RELAY, None, "depot-1", at(0), at(10)).await?.expect("nobody has it");
    assert_eq!(other.take_lease(RELAY, None, "depot-2", at(1), at(11)).await?, None);
    other.give_back_lease(RELAY, "depot-2").await?;
    assert_eq!(other.take_lease(RELAY, None, "depot-2", at(1), at(11)).await?, None, "it was not its own");
    one.give_back_lease(RELAY, "depot-1").await?;
    let next = other.take_lease(RELAY, None, "depot-2", at(1), at(11)).await?.expect("given back");
    assert!(next.fence > held.fence);
    Ok(())
}

/// Each makes the tables that are missing, and none is in the others' way.
#[tokio::test(flavor = "multi_thread")]
async fn processes_that_start_at_once_make_one_database() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let opened = (0..6).map(|_| open_postgres(&url, Depot::rows()));
    let opened: Vec<PostgresStore> = join_all(opened).await.into_iter().collect::<Result<_, _>>()?;
    let mut ids = BTreeSet::new();
    for store in &opened {
        ids.insert(store.mark().await?.id);
    }
    assert_eq!(ids.len(), 1);
    Ok(())
}

/// While a list is read that takes long, what must be quick is; and what nobody waits for any more ends on the server.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_any_more_ends_on_the_server() -> Outcome {
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

/// How many statements sleep in this database.
async fn sleeping(url: &str) -> i64 {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    client.query_one(sql, &[]).await.expect("an answer").get(0)
}

/// A rolling upgrade: whoever is newer adds what the older ones leave alone, and the older ones work on, and are started again.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_build_works_on_beside_a_newer_one_that_only_adds() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let named = |instance| Opening { instance, ..Opening::default() };
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
    let said = fault.to_string();
    assert!(said.contains("has other fields of shelf than the processes that use it"), "{said}");
    commit(&older, recorded("bun", &[], &[put(1)])).await?;
    drop((older, newer));
    let opened = async || open_postgres_as(&url, other(), &named("other")).await.is_ok();
    wait_until("the others are gone, and it is made anew", opened).await;
    Ok(())
}

/// Batches of several processes are begun one after the other; one that stands still in its turn holds nobody up for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_one_process_s_at_a_time_and_whoever_waits_long_goes_on_without() -> Outcome {
    let (_server, [one, other]) = two().await;
    let first = in_time("nobody else has it", one.turn()).await.expect("its turn");
    let (asked_at, mut second) = (Instant::now(), other.turn());
    // Polled once, it waits in the line.
    assert!(futures::poll!(&mut second).is_pending(), "somebody has it");
    drop(first);
    let second = match in_time("it is given back", second).await {
        Some(turn) => turn,
        // On a machine with much to do it was given back too late.
        None => {
            assert!(asked_at.elapsed() >= Duration::from_millis(250), "it went on without");
            in_time("it was given back", other.turn()).await.expect("its turn")
        }
    };
    // Never given back: whoever waits begins without, and what it writes is as good.
    assert!(in_time("nobody waits for ever", one.turn()).await.is_none());
    in_time("it is written", commit(one.as_ref(), recorded("tea", &[], &[put(1)]))).await?;
    drop(second);
    wait_until("it is given back", async || one.turn().await.is_some()).await;
    Ok(())
}
