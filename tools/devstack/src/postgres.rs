//! Shell: the database server of a local system: its programs, its data, and a database and a user for each service.

use std::env;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use nix::unistd::{Pid, Uid, User};

use super::folder::{random, read_random, unwritable, write_secret};
use super::member::Member;
use super::system::System;

/// The oldest server that the services take.
const MINIMUM: u32 = 15;
/// Where distributions put the programs of each version.
const FOLDERS: [(&str, &str); 2] = [("/usr/lib/postgresql", "bin"), ("/usr", "bin")];
/// A server does not run as root: then as the first of these that there is.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// Its owner, who gets in by no way but single-user mode.
const OWNER: &str = "saga";
/// Five replicas of five services have their pools there, and whoever looks.
const MOST_CONNECTIONS: u16 = 500;

/// Finds the programs of a server that is new enough: in `POSTGRES_BIN`, on `PATH`, or where distributions put them.
pub fn find_programs() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os("POSTGRES_BIN") {
        let folder = PathBuf::from(named);
        return match version(&folder) {
            Some(version) if version >= MINIMUM => Ok(folder),
            Some(version) => {
                bail!(
                    "POSTGRES_BIN={} is PostgreSQL {version}, {MINIMUM} or newer is needed",
                    folder.display()
                )
            }
            None => {
                bail!("POSTGRES_BIN={} has no postgres and initdb: correct it or unset it", folder.display())
            }
        };
    }
    let mut candidates: Vec<_> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    for (base, bin) in FOLDERS {
        let versions = fs::read_dir(base).into_iter().flatten().flatten();
        candidates.extend(versions.map(|version| version.path().join(bin)));
    }
    let known = candidates.into_iter().filter_map(|folder| Some((version(&folder)?, folder)));
    let newest = known.filter(|(version, _)| *version >= MINIMUM).max_by_key(|(version, _)| *version);
    newest.map(|(_, folder)| folder).with_context(|| {
        format!(
            "no PostgreSQL {MINIMUM} or newer found: install its server (Debian: postgresql), or name the folder of its \
             programs in POSTGRES_BIN"
        )
    })
}

fn version(folder: &Path) -> Option<u32> {
    if !folder.join("initdb").is_file() || !folder.join("postgres").is_file() {
        return None;
    }
    let output = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

/// `postgres (PostgreSQL) 15.18 (Debian 15.18-0)`
fn parse_version(text: &str) -> Option<u32> {
    let version = text.strip_prefix("postgres (PostgreSQL) ")?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// What the database of a service, and its user there, are called.
pub fn database_of(service: Member) -> String {
    format!("saga_{}", service.kind())
}

/// Where a service finds its database, on a server of this machine.
pub fn url_of(service: Member, port: u16) -> String {
    let name = database_of(service);
    format!("postgres://{name}@127.0.0.1:{port}/{name}?sslmode=disable")
}

/// What the server is started with.
pub fn arguments(system: &System) -> Vec<String> {
    let data = data_of(system);
    let mut arguments = vec!["-D".to_owned(), data.display().to_string()];
    arguments.extend(["-p".to_owned(), system.port_of(Member::POSTGRES).to_string()]);
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        format!("max_connections={MOST_CONNECTIONS}"),
        "shared_buffers=128MB".to_owned(),
        "max_wal_size=2GB".to_owned(),
    ];
    arguments.extend(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
    arguments
}

fn data_of(system: &System) -> PathBuf {
    system.data_of(Member::POSTGRES).join("data")
}

/// Whether there is still somebody of the name that the last server left in its data: then another refuses to start.
pub fn is_held(system: &System) -> bool {
    let file = data_of(system).join("postmaster.pid");
    let holder = fs::read_to_string(file).ok().and_then(|text| text.lines().next()?.parse().ok());
    holder.is_some_and(|pid| nix::sys::signal::kill(Pid::from_raw(pid), None).is_ok())
}

/// A command that runs as somebody who may: a server refuses to be root's.
pub fn command(system: &System, program: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(program);
    let folder = system.data_of(Member::POSTGRES);
    if let Some(user) = owner()? {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        // Root's own folder may be closed to it.
        command.env("HOME", &folder);
    }
    command.current_dir(folder);
    Ok(command)
}

/// As whom the server runs, unless as whoever starts it.
fn owner() -> anyhow::Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let known = USERS.iter().find_map(|name| User::from_name(name).ok().flatten());
    known
        .map(Some)
        .context("a PostgreSQL server does not run as root, and there is no user postgres or nobody")
}

/// Makes what is not there: the data of the server, and for each service a password, a user and a database.
pub fn prepare(system: &System) -> anyhow::Result<()> {
    let secrets: Vec<_> =
        Member::services().map(|service| Secret::of(system, service)).collect::<Result<_, _>>()?;
    let data = data_of(system);
    if data.exists() {
        let new: String = secrets.iter().filter(|secret| secret.is_new).map(Secret::changed).collect();
        if !new.is_empty() {
            run(system, &data, &new)?;
        }
        return secrets.iter().try_for_each(Secret::keep);
    }
    let half_done = data.with_extension("new");
    make(system, &half_done)?;
    run(system, &half_done, &secrets.iter().map(Secret::created).collect::<String>())?;
    secrets.iter().try_for_each(Secret::keep)?;
    fs::rename(&half_done, &data).with_context(|| unwritable(system.folder()))
}

/// By what a service gets in. It is kept once the server knows it: who dies in between makes another one.
struct Secret {
    name: String,
    password: String,
    file: PathBuf,
    is_new: bool,
}

impl Secret {
    fn of(system: &System, service: Member) -> anyhow::Result<Self> {
        let file = system.password_of(service);
        let is_new = !file.exists();
        let password = if is_new { random()? } else { read_random(&file)? };
        Ok(Self { name: database_of(service), password, file, is_new })
    }

    fn created(&self) -> String {
        let Self { name, password, .. } = self;
        format!(
            "CREATE ROLE {name} LOGIN PASSWORD '{password}'\nCREATE DATABASE {name} OWNER {name}\nREVOKE ALL ON DATABASE {name} \
             FROM PUBLIC\n"
        )
    }

    fn changed(&self) -> String {
        format!("ALTER ROLE {} PASSWORD '{}'\n", self.name, self.password)
    }

    fn keep(&self) -> anyhow::Result<()> {
        match self.is_new {
            true => write_secret(&self.file, &self.password),
            false => Ok(()),
        }
    }
}

/// Makes the data of a server that nobody gets into yet.
fn make(system: &System, data: &Path) -> anyhow::Result<()> {
    if data.exists() {
        fs::remove_dir_all(data).with_context(|| unwritable(system.folder()))?;
    }
    let folder = system.data_of(Member::POSTGRES);
    if let Some(user) = owner()? {
        chown(&folder, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
            .with_context(|| unwritable(&folder))?;
    }
    let mut initdb = command(system, &system.program_of(Member::POSTGRES).with_file_name("initdb"))?;
    let options = ["--username", OWNER, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"];
    initdb.arg("--pgdata").arg(data).args(options);
    // Nobody knows it: whoever is root here starts the server in single-user mode.
    let unknown = folder.join("unknown");
    fs::write(&unknown, random()?).with_context(|| unwritable(&folder))?;
    let made = initdb.arg("--pwfile").arg(&unknown).stdin(Stdio::null()).output();
    let _ = fs::remove_file(&unknown);
    let made = made.with_context(|| format!("{} cannot be started", initdb.get_program().display()))?;
    if made.status.success() {
        return Ok(());
    }
    bail!(
        "no database server can be made in {}: {}{}",
        folder.display(),
        String::from_utf8_lossy(&made.stderr).trim(),
        hint(&folder)?
    )
}

/// Why somebody else than root may find no way to a folder.
fn hint(folder: &Path) -> anyhow::Result<String> {
    Ok(owner()?.map_or_else(String::new, |user| {
        format!(
            "\nIt runs as {}, who must be able to get to {}: choose another folder with --data",
            user.name,
            folder.display()
        )
    }))
}

/// Runs statements, one a line, in a server that nobody else can reach: it must not run.
fn run(system: &System, data: &Path, statements: &str) -> anyhow::Result<()> {
    let mut server = command(system, &system.program_of(Member::POSTGRES))?;
    server.args(["--single", "-D"]).arg(data).args(["-c", "exit_on_error=true", "postgres"]);
    let mut child = server.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(statements.as_bytes()).context("the database server takes no statements")?;
    }
    let ended = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    let wrong = said.lines().find(|line| line.contains("ERROR:") || line.contains("FATAL:"));
    match wrong {
        None if ended.status.success() => Ok(()),
        wrong => bail!(
            "the databases cannot be made in {}: {}",
            data.display(),
            wrong.unwrap_or_else(|| said.trim())
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_only_from_what_a_server_says() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_version("postgres (PostgreSQL) 17beta2"), Some(17));
        assert_eq!(parse_version("psql (PostgreSQL) 15.1"), None);
    }
}
