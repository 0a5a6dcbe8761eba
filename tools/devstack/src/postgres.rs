//! Shell: the PostgreSQL server of a local system, with a database and a user for each service.

use std::env;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use nix::unistd::{Pid, Uid, User};

use super::component::Component;
use super::data_dir::unwritable;
use super::secret_file::{random_secret, read_secret, write_secret};
use super::system::System;

const MIN_VERSION: u32 = 15;
/// Folders in which distributions install the programs of each version.
const FOLDERS: [(&str, &str); 2] = [("/usr/lib/postgresql", "bin"), ("/usr", "bin")];
/// Users to run as instead of root, which the server rejects; the first that exists.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// Superuser of the server, used in single-user mode only.
const OWNER: &str = "saga";
/// Enough for the pools of five replicas of five services.
const MAX_CONNECTIONS: u16 = 500;

/// Finds the programs of a supported server: in `POSTGRES_BIN`, else the newest on `PATH` or where distributions install
/// them.
pub fn find_programs() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os("POSTGRES_BIN") {
        let folder = PathBuf::from(named);
        return match version(&folder) {
            Some(version) if version >= MIN_VERSION => Ok(folder),
            Some(version) => {
                bail!(
                    "POSTGRES_BIN={} is PostgreSQL {version}, {MIN_VERSION} or newer is needed",
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
    let newest = known.filter(|(version, _)| *version >= MIN_VERSION).max_by_key(|(version, _)| *version);
    newest.map(|(_, folder)| folder).with_context(|| {
        format!(
            "no PostgreSQL {MIN_VERSION} or newer found: install its server (Debian: postgresql), or name the folder of its \
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

/// Name of the database of a service, and of its user.
pub fn database_of(service: Component) -> String {
    format!("saga_{}", service.kind())
}

/// URL of the database of a service.
pub fn url_of(service: Component, port: u16) -> String {
    let name = database_of(service);
    format!("postgres://{name}@127.0.0.1:{port}/{name}?sslmode=disable")
}

pub fn arguments(system: &System) -> Vec<String> {
    let data = data_of(system);
    let mut arguments = vec!["-D".to_owned(), data.display().to_string()];
    arguments.extend(["-p".to_owned(), system.port_of(Component::POSTGRES).to_string()]);
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        format!("max_connections={MAX_CONNECTIONS}"),
        "shared_buffers=128MB".to_owned(),
        "max_wal_size=2GB".to_owned(),
    ];
    arguments.extend(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
    arguments
}

fn data_of(system: &System) -> PathBuf {
    system.data_of(Component::POSTGRES).join("data")
}

/// True if the process that the data directory names as its server still exists: another one would not start.
pub fn is_locked(system: &System) -> bool {
    let file = data_of(system).join("postmaster.pid");
    let holder = fs::read_to_string(file).ok().and_then(|text| text.lines().next()?.parse().ok());
    holder.is_some_and(|pid| nix::sys::signal::kill(Pid::from_raw(pid), None).is_ok())
}

/// Command that runs as a user that the server accepts.
pub fn command(system: &System, program: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(program);
    let folder = system.data_of(Component::POSTGRES);
    if let Some(user) = owner()? {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        // The home folder of root may be closed to that user.
        command.env("HOME", &folder);
    }
    command.current_dir(folder);
    Ok(command)
}

/// User to run as, if it is not the current one.
fn owner() -> anyhow::Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let known = USERS.iter().find_map(|name| User::from_name(name).ok().flatten());
    known
        .map(Some)
        .context("a PostgreSQL server does not run as root, and there is no user postgres or nobody")
}

/// Creates what is missing: the data directory, and a password, a user and a database for each service.
pub fn prepare(system: &System) -> anyhow::Result<()> {
    let passwords: Vec<_> =
        Component::services().map(|service| Password::of(system, service)).collect::<Result<_, _>>()?;
    let data = data_of(system);
    if data.exists() {
        let new: String =
            passwords.iter().filter(|password| password.is_new).map(Password::alter_statement).collect();
        if !new.is_empty() {
            run(system, &data, &new)?;
        }
        return passwords.iter().try_for_each(Password::store);
    }
    let new_data = data.with_extension("new");
    create_data(system, &new_data)?;
    run(system, &new_data, &passwords.iter().map(Password::create_statements).collect::<String>())?;
    passwords.iter().try_for_each(Password::store)?;
    fs::rename(&new_data, &data).with_context(|| unwritable(system.folder()))
}

/// Password of a service. Its file is written after the server has it: an interrupted start creates another one.
struct Password {
    name: String,
    password: String,
    file: PathBuf,
    is_new: bool,
}

impl Password {
    fn of(system: &System, service: Component) -> anyhow::Result<Self> {
        let file = system.password_of(service);
        let is_new = !file.exists();
        let password = if is_new { random_secret()? } else { read_secret(&file)? };
        Ok(Self { name: database_of(service), password, file, is_new })
    }

    fn create_statements(&self) -> String {
        let Self { name, password, .. } = self;
        format!(
            "CREATE ROLE {name} LOGIN PASSWORD '{password}'\nCREATE DATABASE {name} OWNER {name}\nREVOKE ALL ON DATABASE {name} \
             FROM PUBLIC\n"
        )
    }

    fn alter_statement(&self) -> String {
        format!("ALTER ROLE {} PASSWORD '{}'\n", self.name, self.password)
    }

    fn store(&self) -> anyhow::Result<()> {
        match self.is_new {
            true => write_secret(&self.file, &self.password),
            false => Ok(()),
        }
    }
}

/// Creates a data directory without users or databases of services.
fn create_data(system: &System, data: &Path) -> anyhow::Result<()> {
    if data.exists() {
        fs::remove_dir_all(data).with_context(|| unwritable(system.folder()))?;
    }
    let folder = system.data_of(Component::POSTGRES);
    if let Some(user) = owner()? {
        chown(&folder, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
            .with_context(|| unwritable(&folder))?;
    }
    let mut initdb = command(system, &system.program_of(Component::POSTGRES).with_file_name("initdb"))?;
    let options = ["--username", OWNER, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"];
    initdb.arg("--pgdata").arg(data).args(options);
    // A random password that is stored nowhere: administration needs single-user mode.
    let password_file = folder.join("unknown");
    fs::write(&password_file, random_secret()?).with_context(|| unwritable(&folder))?;
    let created = initdb.arg("--pwfile").arg(&password_file).stdin(Stdio::null()).output();
    let _ = fs::remove_file(&password_file);
    let created = created.with_context(|| format!("{} cannot be started", initdb.get_program().display()))?;
    if created.status.success() {
        return Ok(());
    }
    bail!(
        "the database server cannot be created in {}: {}{}",
        folder.display(),
        String::from_utf8_lossy(&created.stderr).trim(),
        hint(&folder)?
    )
}

/// Advice if the user of the server may have no access to the folder.
fn hint(folder: &Path) -> anyhow::Result<String> {
    Ok(owner()?.map_or_else(String::new, |user| {
        format!(
            "\nIt runs as {}, which needs access to {}: choose another folder with --data",
            user.name,
            folder.display()
        )
    }))
}

/// Runs statements, one per line, in single-user mode. The server must not run.
fn run(system: &System, data: &Path, statements: &str) -> anyhow::Result<()> {
    let mut server = command(system, &system.program_of(Component::POSTGRES))?;
    server.args(["--single", "-D"]).arg(data).args(["-c", "exit_on_error=true", "postgres"]);
    let mut child = server.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(statements.as_bytes()).context("the database server does not read its statements")?;
    }
    let ended = child.wait_with_output()?;
    let output = String::from_utf8_lossy(&ended.stderr);
    let error = output.lines().find(|line| line.contains("ERROR:") || line.contains("FATAL:"));
    match error {
        None if ended.status.success() => Ok(()),
        error => bail!(
            "the databases cannot be created in {}: {}",
            data.display(),
            error.unwrap_or_else(|| output.trim())
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed_from_the_output_of_postgres_only() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_version("postgres (PostgreSQL) 17beta2"), Some(17));
        assert_eq!(parse_version("psql (PostgreSQL) 15.1"), None);
    }
}
