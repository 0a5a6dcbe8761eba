//! A real pgbouncer in front of a PostgreSQL server, for each test.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::nats::free_port;
use super::wait_until;

/// Running pgbouncer. Killed when dropped.
pub struct Pgbouncer {
    url: String,
    process: Child,
    _claim: std::fs::File,
    _folder: TempDir,
}

impl Pgbouncer {
    /// Starts a pooler in front of the database at `url`, as its user. `more` are lines of its section `[pgbouncer]`.
    pub async fn start(url: &str, pool_mode: &str, pool_size: u32, more: &str) -> Self {
        let (server, database) = url.rsplit_once('/').expect("a database");
        let (user, server_port) = server.trim_start_matches("postgres://").split_once('@').expect("a user");
        let (_, server_port) = server_port.split_once(':').expect("a port");
        let folder = tempfile::tempdir().expect("a folder");
        let (port, claim) = free_port();
        write(folder.path(), "users.txt", &format!("\"{user}\" \"\"\n"));
        let users = folder.path().join("users.txt");
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = {pool_mode}\ndefault_pool_size = {pool_size}\n{more}\n",
            users.display()
        );
        write(folder.path(), "pgbouncer.ini", &config);
        let mut process = program(folder.path())
            .arg("--quiet")
            .arg(folder.path().join("pgbouncer.ini"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("pgbouncer: {error}: run scripts/setup.sh --tests"));
        wait_until("pgbouncer is ready", async || {
            let ended = process.try_wait().expect("it is ours");
            assert!(ended.is_none(), "pgbouncer ended with {ended:?}");
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        })
        .await;
        let url = format!("postgres://{user}@127.0.0.1:{port}/{database}");
        Self { url, process, _claim: claim, _folder: folder }
    }

    /// URL of the database behind the pooler.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("a file");
}

/// pgbouncer does not run as root. Debian installs it in a folder that is not on everybody's PATH.
fn program(folder: &Path) -> Command {
    let installed = Path::new("/usr/sbin/pgbouncer");
    let program = if installed.exists() { installed } else { Path::new("pgbouncer") };
    if !nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let user = ["postgres", "nobody"].iter().find_map(|name| nix::unistd::User::from_name(name).ok()?);
    let user = user.expect("a user other than root");
    nix::unistd::chown(folder, Some(user.uid), Some(user.gid)).expect("root may");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user.uid.to_string(), "--regid", &user.gid.to_string(), "--clear-groups"]);
    command.arg(program);
    command
}
