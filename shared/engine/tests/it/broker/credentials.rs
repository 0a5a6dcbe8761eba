//! Credentials and TLS of a connection to the broker.

use std::path::Path;

use saga_engine::nats::{BusSettings, NatsBus, TlsSettings};

use crate::support::{Authority, Lines, Nats, in_time, wait_until};

/// Keys of nobody, for these tests alone: the depot's public one, its seed, and the seed of another.
const DEPOT_KEY: &str = "UDEANLVS5XY7T7RU4YIMEKX555HHBSCPE73BCVNLQRK2JRL7P6P6BQVS";
const DEPOT_SEED: &str = "SUAKRVSKR7HHPQPBXKKUIP6CE6BD73QLYD6Z2RF2T2QAKPDIDCZ6WRG4UM";
const OTHER_SEED: &str = "SUAFOG7UEY22277RGART7JZICIP5PC3DJTAF2W5YMJBMO7QETTZ4DW4HQE";

impl Authority {
    /// A broker that has a certificate of this authority, and wants one of its clients.
    async fn broker(&self) -> Nats {
        let (certificate, key) = self.sign("broker");
        let tls = format!(
            "tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {:?}, verify: true }}\n",
            self.ca()
        );
        Nats::start_with(tls).await
    }
}

#[tokio::test]
async fn client_with_certificate_connects_over_tls() {
    let authority = Authority::new();
    let nats = authority.broker().await;
    let (cert, key) = authority.sign("client");
    let tls = TlsSettings { ca: Some(authority.ca()), cert: Some(cert), key: Some(key) };
    for scheme in ["tls", "nats"] {
        let url = nats.settings().url.replace("nats:", &format!("{scheme}:"));
        let settings = BusSettings { url, tls: tls.clone(), ..nats.settings() };
        let bus = NatsBus::connect(settings, "test").await.expect("files that can be used");
        in_time("the broker is reached", bus.wait_until_connected()).await.expect("a new broker");
        bus.ensure_streams(&["depot"]).await.expect("streams");
    }
}

#[tokio::test]
async fn broker_of_another_authority_is_rejected_with_advice() {
    let (log, _guard) = Lines::listen();
    let (authority, other) = (Authority::new(), Authority::new());
    let nats = authority.broker().await;
    let (cert, key) = authority.sign("client");
    let tls = TlsSettings { ca: Some(other.ca()), cert: Some(cert), key: Some(key) };
    let settings = BusSettings { tls, ..nats.settings() };
    let bus = NatsBus::connect(settings, "test").await.expect("files that can be used");
    wait_until("it is told", async || log.has("its certificate is not signed by an authority of")).await;
    assert!(
        log.has("or it requires a client certificate (bus.tls.cert")
            && log.has(&other.ca().display().to_string())
    );
    assert!(!bus.is_connected());
}

/// The reason is logged once, however often it is tried.
#[tokio::test]
async fn client_connects_with_its_nkey_seed_and_others_are_rejected_with_advice() {
    let (log, _guard) = Lines::listen();
    let folder = tempfile::tempdir().expect("a folder");
    let nats = Nats::start_with(format!("authorization {{ users: [ {{ nkey: {DEPOT_KEY} }} ] }}\n")).await;
    let with = |seed: &str| {
        let file = folder.path().join(format!("{seed}.nk"));
        std::fs::write(&file, format!("# the depot's\n{seed}\n")).expect("a file");
        BusSettings { credentials: Some(file), ..nats.settings() }
    };
    let bus = NatsBus::connect_as(with(DEPOT_SEED), "depot", "depot-1").await.expect("a seed");
    in_time("the broker is reached", bus.wait_until_connected()).await.expect("a new broker");
    bus.warn_if_open();
    assert!(!log.has("accepts anonymous clients"));

    let foreign_client = NatsBus::connect(with(OTHER_SEED), "depot").await.expect("a seed");
    wait_until("it is told", async || log.has("it does not know the user of")).await;
    let anonymous = NatsBus::connect(nats.settings(), "depot").await.expect("an address");
    wait_until("it is told", async || {
        log.has("it accepts only known users: name the file of one in bus.credentials")
    })
    .await;
    assert!(!foreign_client.is_connected() && !anonymous.is_connected());
    // Whoever asks later hears why as well.
    let missing = foreign_client.disconnected().expect("it is not connected");
    assert!(
        missing.starts_with("not connected: ") && missing.contains("authorization violation"),
        "{missing}"
    );
    assert!(
        missing.contains(&format!("{OTHER_SEED}.nk")) && missing.contains("bus.credentials"),
        "{missing}"
    );
    assert_eq!(bus.disconnected(), None);
    assert_eq!(log.count("it does not know the user of"), 1);
    for seed in [DEPOT_SEED, OTHER_SEED] {
        let shown = format!("{:?}", with(seed));
        assert!(shown.contains("credentials"), "{shown}");
        assert_eq!(log.count(&seed[..20]), log.count(&format!("{seed}.nk")), "only as a file's name");
    }
}

/// A renewed file is read at the next connection, and a bad one leaves the last good one in use.
#[tokio::test]
async fn files_changed_while_the_service_runs_are_used_for_the_next_connection() {
    let (folder, authority, other) =
        (tempfile::tempdir().expect("a folder"), Authority::new(), Authority::new());
    let [seed, ca] = ["depot.nk", "ca.pem"].map(|name| folder.path().join(name));
    let (certificate, key) = authority.sign("broker");
    let mut nats = Nats::start_with(format!(
        "tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\nauthorization {{ users: [ {{ nkey: {DEPOT_KEY} }} ] }}\n"
    ))
    .await;
    std::fs::write(&seed, OTHER_SEED).expect("a file");
    std::fs::copy(other.ca(), &ca).expect("a file");
    let tls = TlsSettings { ca: Some(ca.clone()), ..TlsSettings::default() };
    let settings = BusSettings { credentials: Some(seed.clone()), tls, ..nats.settings() };
    let bus = NatsBus::connect(settings, "depot").await.expect("files that can be used");
    assert!(!bus.is_connected());
    std::fs::copy(authority.ca(), &ca).expect("a file");
    wait_until("the user is rejected", async || {
        bus.disconnected().is_some_and(|why| why.contains("authorization violation"))
    })
    .await;
    std::fs::write(&seed, DEPOT_SEED).expect("a file");
    in_time("the broker is reached", bus.wait_until_connected()).await.expect("a new broker");
    std::fs::write(&seed, "damaged").expect("a file");
    std::fs::write(&ca, "damaged").expect("a file");
    // A file is not looked at again within a quarter of a second.
    wait_until("both files are told, and the connection works", async || {
        nats.kill();
        wait_until("the connection is lost", async || !bus.is_connected()).await;
        nats.restart().await;
        in_time("the broker is reached", bus.wait_until_connected()).await.expect("a new broker");
        let unusable = saga_engine::reloaded::unusable_files().unwrap_or_default();
        unusable.contains("bus.credentials") && unusable.contains("bus.tls.ca")
    })
    .await;
}

#[tokio::test]
async fn broker_without_authorization_is_logged() {
    let (log, _guard) = Lines::listen();
    let nats = Nats::start().await;
    nats.bus().await.warn_if_open();
    assert_eq!(log.count("accepts anonymous clients"), 1);
}

#[tokio::test]
async fn unusable_files_are_rejected_with_the_name_of_their_setting() {
    let folder = tempfile::tempdir().expect("a folder");
    let (nonsense, missing) = (folder.path().join("nonsense"), folder.path().join("missing"));
    std::fs::write(&nonsense, "nonsense").expect("a file");
    let tls = |ca: &Path| TlsSettings { ca: Some(ca.to_owned()), ..TlsSettings::default() };
    let of = |credentials: &Path| BusSettings {
        credentials: Some(credentials.to_owned()),
        ..BusSettings::default()
    };
    for (settings, words) in [
        (of(&missing), "bus.credentials"),
        (of(&nonsense), "neither the seed of a user's nkey"),
        (BusSettings { tls: tls(&missing), ..BusSettings::default() }, "bus.tls.ca"),
        (BusSettings { tls: tls(&nonsense), ..BusSettings::default() }, "is not a PEM file"),
    ] {
        let Err(fault) = NatsBus::connect(settings, "test").await else { panic!("{words}") };
        let chain = saga_core::retry::error_chain(&fault);
        assert!(chain.contains(words) && chain.contains(&folder.path().display().to_string()), "{chain}");
    }
}

#[tokio::test]
async fn password_in_an_address_is_never_shown() {
    let url = "nats://depot:hunter2@127.0.0.1:port,nats://127.0.0.1:4223".to_owned();
    let settings = BusSettings { url, ..BusSettings::default() };
    assert_eq!(settings.shown_url(), "nats://127.0.0.1:port,nats://127.0.0.1:4223");
    assert!(!format!("{settings:?}").contains("hunter2"), "{settings:?}");
    let Err(fault) = NatsBus::connect(settings, "test").await else { panic!("that is no address") };
    assert!(!fault.to_string().contains("hunter2"), "{fault}");
}
