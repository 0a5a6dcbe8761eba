//! Shell: calls to services over TLS.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use reqwest::{Certificate, Method};
use saga_engine::host::http::client_builder;
use serde_json::Value;

use crate::harness::{AdminHarness, answered};
use crate::notifications::wait_until;

/// Files of an authority, a certificate for this machine, and its key.
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

#[tokio::test]
async fn admin_calls_tls_services_of_a_trusted_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    let [ca, cert, key] = signed(folder.path());
    let tls = [format!("http.tls.cert={}", cert.display()), format!("http.tls.key={}", key.display())];
    let trusting = format!("http.tls.ca={}", ca.display());
    let trusted = Certificate::from_pem(&std::fs::read(&ca).expect("a file")).expect("a certificate");
    let client = client_builder().tls_certs_only([trusted]).build().expect("a client");
    for trusts in [true, false] {
        let flags = tls.iter().chain(trusts.then_some(&trusting)).map(String::as_str).collect::<Vec<_>>();
        let mut admin = AdminHarness::with(&flags).await;
        admin.http = client.clone();
        assert!(admin.base.starts_with("https://"));
        let breakers = answered(admin.request(Method::GET, "/breakers"), 200).await;
        let problem = &breakers[1]["problem"];
        if trusts {
            assert_eq!(problem, &Value::Null, "{breakers}");
        } else {
            assert!(
                problem.as_str().is_some_and(|problem| problem.contains("order does not answer")),
                "{breakers}"
            );
        }
    }
}

/// A renewed authority needs no restart, and until then the side that does not trust is named.
#[tokio::test]
async fn changed_authorities_are_used_for_the_next_call() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let ([ca, cert, key], [other_ca, ..]) = (signed(folder.path()), signed(other.path()));
    let right = std::fs::read(&ca).expect("a file");
    let trusted = Certificate::from_pem(&right).expect("a certificate");
    std::fs::copy(&other_ca, &ca).expect("a file");
    let settings = [("cert", &cert), ("key", &key), ("ca", &ca)];
    let flags = settings.map(|(name, file)| format!("http.tls.{name}={}", file.display()));
    let mut admin = AdminHarness::with(&flags.each_ref().map(String::as_str)).await;
    admin.http = client_builder().tls_certs_only([trusted]).build().expect("a client");
    let problem = async || answered(admin.request(Method::GET, "/breakers"), 200).await[1]["problem"].clone();
    let untrusted = problem().await;
    let words = format!("the certificate of 127.0.0.1 {}", admin_api::overview::UNTRUSTED);
    assert!(untrusted.as_str().is_some_and(|problem| problem.contains(&words)), "{untrusted}");
    let file = format!("http.tls.ca {}", ca.display());
    assert!(untrusted.as_str().is_some_and(|problem| problem.contains(&file)), "{untrusted}");
    std::fs::write(&ca, right).expect("a file");
    wait_until("admin trusts the services", async || problem().await == Value::Null).await;
}
