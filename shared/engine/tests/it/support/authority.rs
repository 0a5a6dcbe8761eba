//! Certificate authority for one test.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// Authority with a folder of its own.
pub struct Authority {
    pub folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let (folder, key) = (tempfile::tempdir().expect("a folder"), KeyPair::generate().expect("a key"));
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key).expect("a certificate");
        std::fs::write(folder.path().join("ca.pem"), own.pem()).expect("a file");
        Self { folder, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate for this machine. Returns the files of certificate and key.
    pub fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        use std::os::unix::fs::PermissionsExt as _;
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let file = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        std::fs::write(file("pem"), certificate.pem()).expect("a file");
        std::fs::write(file("key"), key.serialize_pem()).expect("a file");
        std::fs::set_permissions(file("key"), std::fs::Permissions::from_mode(0o600)).expect("it is ours");
        (file("pem"), file("key"))
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}
