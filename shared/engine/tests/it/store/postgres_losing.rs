//! A server that goes away at any place of a batch, and databases that cannot be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use saga_core::row::RowKind;
use saga_core::service::Service as _;
use saga_engine::store::postgres::{Place, PostgresStore};
use saga_engine::store::{Opening, Store, StoreFault};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{
    Depot, PostgresServer, Shelf, commit, execute, in_time, open_postgres, open_postgres_as, promises, put,
    recorded, shelf, state,
};

type Outcome = Result<(), StoreFault>;

/// When a connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breaks {
    /// The commit never comes to the server.
    BeforeTheCommit,
    /// The server commits, and its answer is lost.
    BehindTheCommit,
}

/// Something between store and server that breaks one connection, once it is told to.
struct Between {
    url: String,
    /// Commits that are let through before one breaks; never, from `u32::MAX` on.
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

    /// The next commit breaks its connection.
    fn break_next(&self) {
        self.left.store(0, Ordering::SeqCst);
    }
}

/// Hands on what each says to the other, until the connection is to break.
async fn between(client: TcpStream, server: TcpStream, left: &AtomicU32, breaks: Breaks) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let answers = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
    });
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
        let said = &bytes[..count];
        let is_commit = said.windows(7).any(|word| word == b"COMMIT\0");
        let takes_one = |left: u32| (left != u32::MAX).then(|| left.checked_sub(1).unwrap_or(u32::MAX));
        if is_commit && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, takes_one) == Ok(0) {
            answers.abort();
            let _ = answers.await;
            if breaks == Breaks::BehindTheCommit {
                let _ = to_server.write_all(said).await;
                // The server has done it when it ends the connection, to which this half is closed.
                let _ = to_server.shutdown().await;
            }
            return;
        }
        if to_server.write_all(said).await.is_err() {
            return;
        }
    }
}

/// "A commit whose answer was lost is found out, not guessed."
async fn a_batch_whose_commit_breaks_is_stored_once(breaks: Breaks) -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let between = Between::of(&url, breaks).await;
    let store = open_postgres(&between.url, Depot::rows()).await?;
    commit(&store, promises([1])).await?;
    for number in 2..6 {
        between.break_next();
        let promised =
            in_time("it is found out", crate::support::promised(&store, promises([number]))).await?;
        assert_eq!(promised.len(), 1);
        let entries = store.pending(99).await?;
        let ids: Vec<u128> = entries.iter().map(|entry| entry.id.as_u128()).collect();
        assert_eq!(ids, (1..=number).collect::<Vec<_>>(), "{breaks:?}: each once");
        assert_eq!(promised[0].seq, entries.last().expect("an entry").seq, "in its place");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_commit_never_came_to_the_server_is_stored_once() -> Outcome {
    a_batch_whose_commit_breaks_is_stored_once(Breaks::BeforeTheCommit).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_commit_was_done_and_not_answered_is_stored_once() -> Outcome {
    a_batch_whose_commit_breaks_is_stored_once(Breaks::BehindTheCommit).await
}

/// As after a restart of the server: every connection is gone, and none has heard of it.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_server_ends_all_connections_the_store_goes_on() -> Outcome {
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

/// One clear line, and nothing was changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_be_used_is_refused_by_what_is_wrong_with_it() -> Outcome {
    let server = PostgresServer::any();
    let kinds = Depot::rows;
    let refused = async |url: String, wanted: &str| {
        let fault = open_postgres_as(&url, kinds(), &DEPOT).await.err().expect("refused");
        let said = fault.to_string();
        assert!(said.contains(wanted) && !said.contains('\n'), "{said:?} has no {wanted:?}");
    };
    refused(server.url_of("nowhere"), "\"nowhere\" does not exist: make it first (createdb)").await;
    refused("postgres://saga@127.0.0.1:1/depot".to_owned(), "refused").await;

    let others = server.database().await;
    execute(&others, "CREATE TABLE event (what text); INSERT INTO event VALUES ('kept')").await;
    refused(others.clone(), "it has tables of something else, event").await;
    execute(&others, "SELECT what FROM event; DROP TABLE event").await;

    let theirs = server.database().await;
    let courier = Opening { service: "courier", ..Opening::default() };
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

    let must_exist = Opening { must_exist: true, ..DEPOT };
    let fault = open_postgres_as(&closed, kinds(), &must_exist).await.err().expect("refused");
    assert!(fault.to_string().ends_with("there is none"), "{fault}");
    Ok(())
}

const DEPOT: Opening<'static> = Opening {
    service: "depot",
    must_exist: false,
    check_within: std::time::Duration::from_secs(5),
    accept_loss: "",
    instance: "",
    alone: false,
    wait: std::time::Duration::ZERO,
};

/// A field more, or other ones: the rows are folded anew from their events.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_kind_whose_declaration_has_changed_are_folded_anew() -> Outcome {
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

/// One clear line, without the password; and the right one, from wherever it comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_needed_and_a_wrong_one_is_said_to_be_wrong() -> Outcome {
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
        let said = fault.to_string();
        assert!(said.contains("password") && !said.contains("wrong@"), "{said}");
    }
    drop(open_postgres_as(&with(":right"), Depot::rows(), &DEPOT).await?);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "right\n").expect("a file");
    let place = Place::of(&with(":wrong"), Some(&file)).map_err(StoreFault::Unusable)?;
    drop(PostgresStore::open(&place, Depot::rows(), &DEPOT).await?);
    let back = format!(
        "ALTER DATABASE {name} OWNER TO saga; REASSIGN OWNED BY owner_of_{name} TO saga; DROP ROLE owner_of_{name}"
    );
    execute(&url, &back).await;
    Ok(())
}

/// A defect: a service that was started while its server was starting too ended at once, and nobody started it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_yet_is_waited_for() -> Outcome {
    let server = PostgresServer::started(&[]);
    let url = server.database().await;
    // Somebody takes connections, and breaks them off, as a server does that is not up yet.
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
        for turn in 0.. {
            let Ok((mut client, _)) = stand_in.accept().await else { return };
            if turn < 2 {
                continue;
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
    let patient = Opening { wait: std::time::Duration::from_secs(20), ..DEPOT };
    let store = open_postgres_as(&through, Depot::rows(), &patient).await?;
    in_time("it is written", commit(&store, recorded("tea", &[], &[put(1)]))).await
}
