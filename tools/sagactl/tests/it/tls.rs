//! Shell: services and sagactl over TLS.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::startup::Process;
use crate::system::{free_ports, programs, wait_until};

/// Creates an authority, a certificate for this machine, and its key, as files.
fn signed(folder: &Path) -> [PathBuf; 3] {
    let (own_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = params.self_signed(&own_key).expect("a certificate");
    let issuer = Issuer::new(params, own_key);
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let [ca, cert, key_file] = ["ca.pem", "cert.pem", "key.pem"].map(|name| folder.join(name));
    for (file, text) in [(&ca, own.pem()), (&cert, certificate.pem()), (&key_file, key.serialize_pem())] {
        std::fs::write(file, text).expect("written");
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    }
    [ca, cert, key_file]
}

/// The bank answers that it is no admin: by then the handshake has succeeded.
#[tokio::test]
async fn admin_over_tls_requires_trust_in_its_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    let [ca, cert, key] = signed(folder.path());
    let port = free_ports();
    let settings = [
        format!("http.bind=127.0.0.1:{port}"),
        format!("store.url=sqlite:{}", folder.path().join("bank.db").display()),
        format!("http.tls.cert={}", cert.display()),
        format!("http.tls.key={}", key.display()),
    ];
    let mut bank = Command::new(programs().join("bank"));
    bank.args(settings.iter().flat_map(|setting| ["--set", setting])).stderr(Stdio::null());
    let _bank = Process(bank.spawn().expect("the bank starts"));
    let asks = |scheme: &str, trusts: Option<&Path>| -> Output {
        let mut sagactl = Command::new(programs().join("sagactl"));
        sagactl
            .args(["dlq", "list", "--admin", &format!("{scheme}://127.0.0.1:{port}")])
            .env_remove("SAGA_CA");
        if let Some(ca) = trusts {
            sagactl.env("SAGA_CA", ca);
        }
        sagactl.output().expect("sagactl runs")
    };
    wait_until("the bank answers over TLS", async || asks("https", Some(&ca)).status.code() == Some(4)).await;
    let printed = String::from_utf8_lossy(&asks("https", Some(&ca)).stderr).into_owned();
    assert!(printed.contains("there is no route /api/admin/dlq"), "{printed}");
    let assert_rejected = |scheme: &str, trusts: Option<&Path>, code: i32, why: &str| {
        let rejected = asks(scheme, trusts);
        let printed = String::from_utf8_lossy(&rejected.stderr).into_owned();
        assert_eq!(rejected.status.code(), Some(code), "{scheme} {trusts:?}: {printed}");
        assert!(printed.contains(why), "{scheme} {trusts:?}: {printed}");
    };
    assert_rejected(
        "https",
        None,
        1,
        "is not trusted: name a file with the certificate of its authority with --ca",
    );
    assert_rejected("https", Some(&cert), 1, "--ca");
    assert_rejected("http", Some(&ca), 1, "it seems to use TLS: write https:// instead");
    assert_rejected("https", Some(&key), 2, "no certificates");
    // Its own check asks it as well, whatever it is trusted by.
    let mut healthy = Command::new(programs().join("bank"));
    healthy.arg("healthy").args(settings.iter().flat_map(|setting| ["--set", setting]));
    let printed = healthy.output().expect("it runs");
    assert!(printed.status.success() && printed.stdout == b"bank: ready\n", "{printed:?}");
}

/// Servers differ: some treat the handshake as a request, others close the connection.
#[tokio::test]
async fn port_without_tls_is_distinguished_from_a_closed_port() {
    for answer in ["HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", ""] {
        let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = plain.local_addr().expect("an address");
        let server = std::thread::spawn(move || {
            let (mut asker, _) = plain.accept().expect("a connection");
            let _ = asker.read(&mut [0; 4_096]).expect("a handshake");
            asker.write_all(answer.as_bytes()).expect("answered");
        });
        let mut sagactl = Command::new(env!("CARGO_BIN_EXE_sagactl"));
        sagactl.args(["dlq", "list", "--admin", &format!("https://{address}")]).env_remove("SAGA_CA");
        let output = sagactl.output().expect("sagactl runs");
        server.join().expect("it answered");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(
            printed.contains("it seems to use plain HTTP: write http:// instead"),
            "{answer:?}: {printed}"
        );
    }
}
