//! PostgreSQL: connections lost at any point of a batch, and databases that cannot be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use saga_core::row::RowKind;
use saga_core::service::Service as _;
use saga_engine::store::postgres::{DbLocation, PostgresStore};
use saga_engine::store::roles::{Outbox as _, Queries as _, Verification as _};
use saga_engine::store::{DEFAULT_MAX_CONNECTIONS, OpenOptions, StoreFault};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{
    Depot, PostgresServer, Shelf, commit, execute, in_time, open_postgres, open_postgres_as, outbox_writes,
    put, recorded, shelf, state,
};

type Outcome = Result<(), StoreFault>;

/// Point at which a connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breaks {
    /// The commit never reaches the server.
    BeforeTheCommit,
    /// The server commits, and its reply is lost.
    BehindTheCommit,
}

/// Proxy between store and server that breaks one connection on command.
struct Between {
    url: String,
    /// Number of commits to pass before one breaks; `u32::MAX` for never.
    left: Arc<AtomicU32>,
}

impl Between {
    async fn of(url: &str, breaks: Breaks) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (host, database) = url.rsplit_once('/').expect("a database");
        let server = host.rsplit_once('@').expect("a host").1.to_owned();
        let left = Arc::new(AtomicU32::new(u32::MAX));
        let of_all = left.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, left) = (server.clone(), of_all.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(server).await.expect("the server");
                    between(client, server, &left, breaks).await;
                });
            }
        });
        Self { url: format!("postgres://saga@127.0.0.1:{port}/{database}"), left }
    }

    /// Breaks the connection at the next commit.
    fn break_next(&self) {
        self.left.store(0, Ordering::SeqCst);
    }
}

/// Forwards bytes in both directions until the connection is to break.
async fn between(client: TcpStream, server: TcpStream, left: &AtomicU32, breaks: Breaks) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let answers = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
    });
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
        let message = &bytes[..count];
        let is_commit = message.windows(7).any(|word| word == b"COMMIT\0");
        let takes_one = |left: u32| (left != u32::MAX).then(|| left.checked_sub(1).unwrap_or(u32::MAX));
        if is_commit && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, takes_one) == Ok(0) {
            answers.abort();
            let _ = answers.await;
            if breaks == Breaks::BehindTheCommit {
                let _ = to_server.write_all(message).await;
                // The server has done it when it ends the connection, to which this half is closed.
                let _ = to_server.shutdown().await;
            }
            return;
        }
        if to_server.write_all(message).await.is_err() {
            return;
        }
    }
}

/// The store finds out whether the commit was done, and does not guess.
async fn batch_is_stored_once_when_commit_breaks(breaks: Breaks) -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let between = Between::of(&url, breaks).await;
    let store = open_postgres(&between.url, Depot::rows()).await?;
    commit(&store, outbox_writes([1])).await?;
    for number in 2..6 {
        between.break_next();
        let commit_entries =
            in_time("it is found out", crate::support::commit_entries(&store, outbox_writes([number])))
                .await?;
        assert_eq!(commit_entries.len(), 1);
        let entries = store.pending_entries(99).await?;
        let ids: Vec<u128> = entries.iter().map(|entry| entry.id.as_u128()).collect();
        assert_eq!(ids, (1..=number).collect::<Vec<_>>(), "{breaks:?}: each once");
        assert_eq!(commit_entries[0].seq, entries.last().expect("an entry").seq, "in its place");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_stored_once_when_commit_never_reached_server() -> Outcome {
    batch_is_stored_once_when_commit_breaks(Breaks::BeforeTheCommit).await
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_stored_once_when_reply_to_commit_is_lost() -> Outcome {
    batch_is_stored_once_when_commit_breaks(Breaks::BehindTheCommit).await
}

/// As after a restart of the server, which ends every connection without notice.
#[tokio::test(flavor = "multi_thread")]
async fn store_recovers_when_server_ends_all_connections() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let store = open_postgres(&url, Depot::rows()).await?;
    for round in 0..5_u32 {
        let label = format!("tea-{round}");
        commit(&store, recorded(&label, &[], &[put(1)])).await?;
        let end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()";
        execute(&url, end_all).await;
        let next = format!("tea-{round}-next");
        in_time("it goes on", commit(&store, recorded(&next, &[], &[put(2)]))).await?;
        assert_eq!(state(&store, &next).await?.expect("a shelf").pieces, 2);
    }
    assert!(store.verify().await?.differing.is_empty());
    Ok(())
}

/// Reports one clear line, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn unusable_database_is_rejected_with_its_reason() -> Outcome {
    let server = PostgresServer::any();
    let kinds = Depot::rows;
    let refused = async |url: String, wanted: &str| {
        let fault = open_postgres_as(&url, kinds(), &DEPOT).await.err().expect("refused");
        let message = fault.to_string();
        assert!(message.contains(wanted) && !message.contains('\n'), "{message:?} has no {wanted:?}");
    };
    refused(server.url_of("nowhere"), "\"nowhere\" does not exist: make it first (createdb)").await;
    refused("postgres://saga@127.0.0.1:1/depot".to_owned(), "refused").await;

    let others = server.database().await;
    execute(&others, "CREATE TABLE event (what text); INSERT INTO event VALUES ('kept')").await;
    refused(others.clone(), "it has tables of something else, event").await;
    execute(&others, "SELECT what FROM event; DROP TABLE event").await;

    let theirs = server.database().await;
    let courier = OpenOptions { service: "courier", ..OpenOptions::default() };
    drop(open_postgres_as(&theirs, kinds(), &courier).await?);
    refused(theirs, "it is courier's, not depot's").await;

    let newer = server.database().await;
    drop(open_postgres_as(&newer, kinds(), &DEPOT).await?);
    execute(&newer, "INSERT INTO migration SELECT 2, 'of the future', 0").await;
    refused(newer, "the database has schema 2, this build knows 1: start a newer build").await;

    let closed = server.database().await;
    let name = closed.rsplit('/').next().expect("a name").to_owned();
    execute(&closed, &format!("CREATE ROLE guest_of_{name} LOGIN PASSWORD 'any'")).await;
    let as_guest = closed.replace("saga@", &format!("guest_of_{name}:any@"));
    refused(as_guest, "permission denied for schema public: its user must own").await;
    execute(&closed, &format!("DROP ROLE guest_of_{name}")).await;

    let must_exist = OpenOptions { must_exist: true, ..DEPOT };
    let fault = open_postgres_as(&closed, kinds(), &must_exist).await.err().expect("refused");
    assert!(fault.to_string().ends_with("there is none"), "{fault}");
    Ok(())
}

const DEPOT: OpenOptions<'static> = OpenOptions {
    service: "depot",
    must_exist: false,
    check_within: std::time::Duration::from_secs(5),
    accept_loss: "",
    instance: "",
    alone: false,
    wait: std::time::Duration::ZERO,
    max_connections: DEFAULT_MAX_CONNECTIONS,
};

/// Rows are folded again from their events after a field was added or changed.
#[tokio::test(flavor = "multi_thread")]
async fn kind_with_changed_fields_is_rebuilt() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let fewer = RowKind { fields: &[], numbers: &[], ..RowKind::of::<Shelf>() };
    let old = open_postgres(&url, vec![fewer]).await?;
    let mut writes = recorded("tea", &[], &[put(3)]);
    writes.rows[0].projected.fields = vec![];
    commit(&old, writes).await?;
    drop(old);
    let new: PostgresStore = open_postgres(&url, vec![RowKind::of::<Shelf>()]).await?;
    let found = new.row(shelf("tea")).await?.expect("the row");
    assert_eq!(found.version, 1);
    let pieces = saga_core::query::Query {
        equals: vec![("pieces", 3_i64.into())],
        limit: 9,
        ..saga_core::query::Query::default()
    };
    assert_eq!(new.find("shelf", pieces).await?.len(), 1, "by a field that it had not");
    assert!(new.verify().await?.differing.is_empty());
    Ok(())
}

/// Reports one clear line without the password.
#[tokio::test(flavor = "multi_thread")]
async fn missing_or_wrong_password_is_reported() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let name = url.rsplit('/').next().expect("a name").to_owned();
    let owner = format!(
        "CREATE ROLE owner_of_{name} LOGIN PASSWORD 'right'; ALTER DATABASE {name} OWNER TO owner_of_{name}"
    );
    execute(&url, &owner).await;
    let with = |password: &str| url.replace("saga@", &format!("owner_of_{name}{password}@"));
    for password in ["", ":wrong"] {
        let fault = open_postgres_as(&with(password), Depot::rows(), &DEPOT).await.err().expect("refused");
        let message = fault.to_string();
        assert!(message.contains("password") && !message.contains("wrong@"), "{message}");
    }
    drop(open_postgres_as(&with(":right"), Depot::rows(), &DEPOT).await?);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "right\n").expect("a file");
    let place = DbLocation::of(&with(":wrong"), Some(&file)).map_err(StoreFault::Unusable)?;
    drop(PostgresStore::open(&place, Depot::rows(), &DEPOT).await?);
    let back = format!(
        "ALTER DATABASE {name} OWNER TO saga; REASSIGN OWNED BY owner_of_{name} TO saga; DROP ROLE owner_of_{name}"
    );
    execute(&url, &back).await;
    Ok(())
}

/// Room may come back a moment later.
#[tokio::test(flavor = "multi_thread")]
async fn open_waits_while_the_disk_is_full() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    // Sequences keep what a transaction took that is rolled back.
    let fill = "CREATE SCHEMA disk; CREATE SEQUENCE disk.tries;
        CREATE FUNCTION disk.is_full() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM nextval('disk.tries');
            RAISE 'could not extend file' USING ERRCODE = 'disk_full';
        END $$;
        CREATE EVENT TRIGGER is_full ON ddl_command_start WHEN TAG IN ('CREATE TABLE')
            EXECUTE FUNCTION disk.is_full()";
    execute(&url, fill).await;
    let patient = OpenOptions { wait: std::time::Duration::from_secs(60), ..DEPOT };
    let (opened, ()) = tokio::join!(open_postgres_as(&url, Depot::rows(), &patient), async {
        let two_tries = "DO $$ BEGIN WHILE (SELECT last_value FROM disk.tries) < 2 LOOP
            PERFORM pg_sleep(0.01);
        END LOOP; END $$";
        in_time("it tries again", execute(&url, two_tries)).await;
        execute(&url, "DROP EVENT TRIGGER is_full").await;
    });
    opened.map(drop)
}

/// Regression: a service that started before its server ended at once.
#[tokio::test(flavor = "multi_thread")]
async fn open_waits_for_starting_server() -> Outcome {
    let server = PostgresServer::started(&[]);
    let url = server.database().await;
    // Somebody takes connections, and breaks them off or does not answer, as a server does that is not up yet.
    let stand_in = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = stand_in.local_addr().expect("its address").port();
    let through = url.replace(
        &url[url.rfind(':').expect("a port") + 1..url.rfind('/').expect("a database")],
        &port.to_string(),
    );
    let of_server: u16 = url[url.rfind(':').expect("a port") + 1..url.rfind('/').expect("a database")]
        .parse()
        .expect("a port");
    tokio::spawn(async move {
        let mut unanswered = vec![];
        for turn in 0.. {
            let Ok((mut client, _)) = stand_in.accept().await else { return };
            match turn {
                0 | 1 => continue,
                2 => {
                    unanswered.push(client);
                    continue;
                }
                _ => {}
            }
            tokio::spawn(async move {
                let to = tokio::net::TcpStream::connect(("127.0.0.1", of_server)).await;
                let mut to = to.expect("the server");
                let _ = tokio::io::copy_bidirectional(&mut client, &mut to).await;
            });
        }
    });
    let impatient = open_postgres_as(&through, Depot::rows(), &DEPOT).await.err().expect("it is not there");
    assert!(!impatient.to_string().contains('\n'), "{impatient}");
    let patient = OpenOptions { wait: std::time::Duration::from_secs(20), ..DEPOT };
    let store = open_postgres_as(&through, Depot::rows(), &patient).await?;
    in_time("it is written", commit(&store, recorded("tea", &[], &[put(1)]))).await
}
